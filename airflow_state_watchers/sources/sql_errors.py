"""What a database's error means, in words that hold no secret and no row's values.

Drivers agree on little. Those that give an SQLSTATE are read by it, MySQL's by its numbers, SQLite's by its few messages. A foreign
error's own text is told only where it can name nothing but what the DAG's author wrote.
"""

from __future__ import annotations

from airflow_state_watchers.exceptions import SourceDenied, SourceError, SourceMissing, SourceUnavailable

_STATES: dict[str, tuple[type[SourceError], str]] = {
    "42P01": (SourceMissing, "there is no such table. Check table=... and the connection's database and search path"),
    "3F000": (SourceMissing, "there is no such schema. Check table=..."),
    "42703": (SourceMissing, "there is no such column. Check watermark_column, key_columns, columns and where"),
    "3D000": (SourceMissing, "there is no such database. Check the connection's schema field"),
    "42501": (SourceDenied, "permission denied. Grant SELECT on it to the connection's user"),
    "28P01": (SourceDenied, "the server refused user or password. Check the connection"),
    "28000": (SourceDenied, "the server refused the connection's user. Check the connection and the server's access rules"),
    "55P03": (SourceUnavailable, "another session holds a lock on it (lock time-out)"),
    "57014": (SourceUnavailable, "the statement took too long. Is there an index on the watermark column? See also "
              "[state_watchers] source_timeout"),
    "53300": (SourceUnavailable, "the server takes no more connections"),
}  # fmt: skip
_CLASSES: dict[str, tuple[type[SourceError], str]] = {
    "08": (SourceUnavailable, "the connection was lost or could not be made"),
    "22": (
        SourceError,
        "a value does not fit the column's type. Was the column's type changed, or the watermark edited?",
    ),
    "28": (SourceDenied, "the server refused the connection's user. Check the connection"),
    "57": (SourceUnavailable, "the server is being restarted, or ended the session"),
}
_MYSQL = {
    1146: "42P01", 1054: "42703", 1049: "3D000", 1045: "28P01", 1044: "42501", 1142: "42501", 1143: "42501", 1370: "42501",
    1205: "55P03", 3024: "57014", 1969: "57014", 1317: "57014", 1040: "53300", 2002: "08000", 2003: "08000", 2005: "08000",
    2006: "08000", 2013: "08000", 2055: "08000", 1053: "57000",
}  # fmt: skip
_WORDS = {
    "no such table": "42P01", "no such column": "42703", "unable to open database": "3D000", "database is locked": "55P03",
    "password authentication failed": "28P01", "no password supplied": "28P01", "no pg_hba.conf entry": "28000",
    "role": "28000", "database": "3D000", "too many connections": "53300", "too many clients": "53300",
}  # fmt: skip


def explain(error: BaseException, *, label: str, conn_id: str) -> SourceError:
    """Return what to raise in the place of a driver's error."""
    if isinstance(error, SourceError):
        return error
    where = f"{label} (connection {conn_id!r})"
    state = _state_of(error)
    kind, text = _STATES.get(state) or _CLASSES.get(state[:2]) or (SourceUnavailable, "")
    if state.startswith("42") and state not in _STATES:
        # A mistake in what was asked: the message names what the author wrote, and no values.
        kind, text = SourceMissing, f"the statement is not understood: {_primary(error)}"
    if not text:
        text = f"the database did not answer properly ({type(error).__name__}{f', SQLSTATE {state}' if state else ''})"
    elif state in ("42P01", "42703"):
        text = f"{text} ({_primary(error)})" if _primary(error) else text
    return kind(f"{where}: {text}")


def _state_of(error: BaseException) -> str:
    number = error.args[0] if error.args else None
    if isinstance(number, int) and number in _MYSQL:  # which says more than MySQL's SQLSTATE
        return _MYSQL[number]
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if isinstance(state, str):
        return state
    message = str(error)
    found = next((state for words, state in _WORDS.items() if words in message and _tells(words, message)), "")
    return found or ("08000" if "onnection" in type(error).__name__ + message or "timeout" in message else "")


def _tells(words: str, message: str) -> bool:
    """A role or a database is missing only where the message says so."""
    return words not in ("role", "database") or "does not exist" in message


def _primary(error: BaseException) -> str:
    """Return the first line of what the server said, without what it quotes of the statement."""
    message = getattr(getattr(error, "diag", None), "message_primary", None) or getattr(error, "msg", None)
    if message is None:
        message = str(error.args[-1] if error.args else "")
    return str(message).partition("\n")[0][:200]
