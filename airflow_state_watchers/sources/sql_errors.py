"""What went wrong with a look at a database, in words for the person who has to mend it.

Messages are made of codes and of names that the DAG's author wrote, never of a driver's text: such a text can repeat a password, a
whole connection string or a row's values. For the same reason the errors are to be raised without their cause.
"""

from __future__ import annotations

import re

from airflow_state_watchers.exceptions import SourceError, SourceMissing, SourceUnavailable
from airflow_state_watchers.sources.sql_troubles import (
    COLUMN,
    DENIED,
    NAMED,
    NUMBERS,
    OTHER,
    REFUSED,
    STATEMENT,
    STATES,
    TABLE,
    VALUE,
    WORDS,
    Trouble,
)

_BY_CLASS = {"ProgrammingError": STATEMENT, "NotSupportedError": STATEMENT, "DataError": VALUE, "OverflowError": VALUE}


def explain(error: BaseException, *, label: str, conn_id: str, dialect: str = "") -> SourceError:
    """Return what to raise in the place of a driver's error, or of Airflow's when it makes a connection.

    ``label`` is how messages call the table; ``dialect`` is the database's name, by which an error's number is known.
    """
    if isinstance(error, SourceError):
        return error if label in str(error) else type(error)(f"{label}: {error}")
    if isinstance(error, ImportError) or type(error).__name__.startswith("Airflow"):
        return explain_hook(error, label=label, conn_id=conn_id)
    trouble, code = _classified(error, dialect)
    name = _named(error) if trouble in (TABLE, COLUMN, DENIED) else _analysed(error) if trouble is STATEMENT else ""
    what = f"{trouble.what}: {name}" if name not in ("", label) else trouble.what
    return trouble.kind(f"{label}: {what} (connection {conn_id!r}, {code}). {trouble.remedy}")


def explain_hook(error: BaseException, *, label: str, conn_id: str) -> SourceError:
    """Return what to raise where Airflow gives no hook for a connection."""
    name, text = type(error).__name__, str(error)
    if name == "AirflowNotFoundException" or "isn't defined" in text:
        return SourceMissing(f"{label}: Airflow has no connection {conn_id!r}. Create it, or change conn_id")
    if isinstance(error, (OSError, TimeoutError)):
        return SourceUnavailable(f"{label}: connection {conn_id!r} cannot be read now ({name}). It is tried again")
    if isinstance(error, ImportError) or re.search("Unknown hook type|package (?:installed|'.*' is not)", text):
        remedy = "Install the provider of its type, and the driver, where the triggerer runs"
        return SourceMissing(f"{label}: connection {conn_id!r} has no hook here ({name}). {remedy}")
    remedy = "Correct its fields, its extra or hook_params, or use the connection of a SQL database"
    return SourceError(f"{label}: connection {conn_id!r} gives no SQL hook ({name}). {remedy}")


def _classified(error: BaseException, dialect: str) -> tuple[Trouble, str]:
    name, number, state = type(error).__name__, _number(error), _state(error)
    for numbers, trouble in NUMBERS.get(dialect, ()) if number else ():
        if number in numbers:
            return trouble, f"{name} {number}"
    for beginning, trouble in STATES if state else ():
        if state.startswith(beginning):
            return trouble, f"SQLSTATE {state}"
    code = f"SQLSTATE {state}" if state else (f"{name} {number}" if number else name)
    words = str(error).lower()
    for pattern, trouble in WORDS:
        if re.search(pattern, words):
            return trouble, code
    if isinstance(error, OSError):
        return REFUSED, code
    return _BY_CLASS.get(name, OTHER), code


def _named(error: BaseException) -> str:
    """Return the table or column that a message names in a form that is known to hold nothing else."""
    message = getattr(getattr(error, "diag", None), "message_primary", None) or getattr(error, "msg", None)
    line = str(message or (error.args[-1] if error.args else "")).partition("\n")[0]
    found = (re.search(pattern, line) for pattern in NAMED)
    return next((match[1][:200] for match in found if match), "")


def _analysed(error: BaseException) -> str:
    """Return what PostgreSQL says against a statement before it reads any row: only the author's own words can be in that."""
    return str(getattr(getattr(error, "diag", None), "message_primary", None) or "")[:200]


def _state(error: BaseException) -> str:
    first = error.args[0] if error.args else None
    if isinstance(first, dict):  # redshift_connector
        first = first.get("C")
    elif len(error.args) < 2:  # a lone one is the text
        first = None
    for state in (getattr(error, "sqlstate", None), getattr(error, "pgcode", None), first):
        if isinstance(state, str) and re.fullmatch(r"[0-9A-Z]{5}", state):
            return state
    return ""


def _number(error: BaseException) -> int | None:
    if isinstance(error, OSError):  # the operating system's, which mean something else
        return None
    first = error.args[0] if error.args else None
    for number in (getattr(error, "errno", None), first, getattr(first, "code", None)):
        if isinstance(number, int) and not isinstance(number, bool) and number > 0:
            return number
    text = str(error)
    # Oracle's own; and pyodbc's, which has SQL Server's number in brackets behind the text.
    found = re.match(r"(?:ORA|DPY)-(\d{3,6})", text) or re.search(r"\[SQL Server\].*?\((\d{3,6})\)", text)
    return int(found[1]) if found else None
