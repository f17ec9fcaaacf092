"""What can be wrong with a look at a database, and how each database says so."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_state_watchers.exceptions import SourceDenied, SourceError, SourceMissing, SourceUnavailable


@dataclass(frozen=True, slots=True)
class Trouble:
    """Which error to raise, what to say, and what to do about it."""

    kind: type[SourceError]
    what: str
    remedy: str


_AGAIN = "It is tried again"
TABLE = Trouble(
    SourceMissing,
    "there is no such table",
    "Create it, or correct table and the connection's database; a role without any right may not see it",
)
COLUMN = Trouble(
    SourceMissing,
    "there is no such column",
    "Correct watermark_column, key_columns, columns or where, or mend the table",
)
DATABASE = Trouble(
    SourceMissing, "there is no such database or schema", "Correct the connection's schema, or create it"
)
DENIED = Trouble(SourceDenied, "reading is denied", "Grant SELECT on it to the connection's user")
PASSWORD = Trouble(SourceDenied, "the login is not accepted", "Correct login, password and host of the connection")
REFUSED = Trouble(
    SourceUnavailable, "cannot connect", "Check the server, the network, and host and port of the connection"
)
LOST = Trouble(SourceUnavailable, "the connection was lost", f"{_AGAIN}, over a new one")
LOCK = Trouble(SourceUnavailable, "it is locked", f"See which session holds the lock. {_AGAIN}")
SLOW = Trouble(
    SourceUnavailable,
    "the statement took too long",
    "Is there an index on the watermark column? See also [state_watchers] source_timeout",
)
FULL = Trouble(SourceUnavailable, "the server takes no more connections", f"Raise its limit, or close others. {_AGAIN}")
STATEMENT = Trouble(SourceError, "the database does not take the statement", "Correct where or sql of the watcher")
VALUE = Trouble(
    SourceError,
    "a value does not fit its column's type",
    "Was the column's type changed, or the watermark edited? Correct where, sql or initial_value",
)
OTHER = Trouble(SourceUnavailable, "the database did not answer properly", _AGAIN)

STATES: tuple[tuple[str, Trouble], ...] = (
    # SQLSTATE, by its beginning; the first that fits.
    ("42P01", TABLE), ("42S02", TABLE), ("42703", COLUMN), ("42S22", COLUMN), ("42501", DENIED),
    ("3D000", DATABASE), ("3F000", DATABASE), ("28", PASSWORD), ("55P03", LOCK), ("40", LOCK), ("57014", SLOW),
    ("HYT", SLOW), ("53300", FULL), ("57", LOST), ("08", LOST), ("42", STATEMENT), ("22", VALUE),
)  # fmt: skip
"""Read after :data:`NUMBERS`: MySQL and SQL Server give the same state to much that differs."""

NUMBERS: dict[str, tuple[tuple[tuple[int, ...], Trouble], ...]] = {
    "mysql": (
        ((1146, 1051), TABLE), ((1054,), COLUMN), ((1049,), DATABASE), ((1044, 1142, 1143, 1227, 1370), DENIED),
        ((1045, 1698, 1251, 2059, 2061), PASSWORD), ((2002, 2003, 2005), REFUSED), ((1040, 1203), FULL),
        ((2006, 2013, 2055, 1053, 1927, 4031), LOST), ((1205, 1213), LOCK), ((1317, 1969, 3024), SLOW),
        ((1064, 1305), STATEMENT), ((1292, 1525, 1366), VALUE),
    ),
    "mssql": (
        ((208,), TABLE), ((207,), COLUMN), ((911, 4060), DATABASE), ((229, 230), DENIED), ((18456, 18452), PASSWORD),
        ((20009, 20002), REFUSED), ((1222, 1205), LOCK), ((20003,), SLOW), ((20006, 20047, 233, 10054), LOST),
        ((102,), STATEMENT), ((241, 245), VALUE),
    ),
    "oracle": (
        ((942, 4043), TABLE), ((904,), COLUMN), ((1031, 41900), DENIED), ((1017, 28000), PASSWORD), ((54,), LOCK),
        ((12514, 12541, 12545, 6005), REFUSED), ((1013,), SLOW), ((3113, 3114, 3135, 12537, 1012), LOST),
        ((12516, 12519, 12520, 18), FULL), ((911, 933, 936), STATEMENT), ((1722, 1861), VALUE),
    ),
    "snowflake": (((2003, 2043), TABLE), ((904,), COLUMN), ((3001,), DENIED), ((250001, 390100), PASSWORD), ((604,), SLOW)),
}  # fmt: skip

WORDS: tuple[tuple[str, Trouble], ...] = (
    # What drivers say that give no code: SQLite always, others while they connect. Only looked for, never repeated.
    (r"no such table|relation .* does not exist|table not found", TABLE),
    (r"no such column|column .* does not exist", COLUMN),
    (r"unable to open database file|file is not a database|database .* does not exist", DATABASE),
    (
        r"password authentication|no password supplied|login failed|access denied|authentication failed|no pg_hba.conf entry"
        r"|role .* does not exist",
        PASSWORD,
    ),
    (r"permission denied|not authorized|forbidden|unauthorized", DENIED),
    (r"database (?:table )?is locked|lock wait|database schema is locked", LOCK),
    (r"too many (?:clients|connections)|remaining connection slots", FULL),
    (r"interrupted|timed? ?out|timeout expired|canceling statement", SLOW),
    (
        r"refused|could not translate host|failed to resolve|name or service not known|unreachable|no such file",
        REFUSED,
    ),
    (
        r"starting up|shutting down|server closed|connection (?:was |is )?(?:reset|lost|closed)|\beof\b|broken pipe|gone away",
        LOST,
    ),
    (r"syntax error|no such function|unrecognized token|\bparse\b", STATEMENT),
)

NAMED = (
    # PostgreSQL and Redshift
    r'^(?:relation|schema) "(.+)" does not exist$',
    r"^column (.+) does not exist$",
    r"^permission denied for (?:table|relation|view|materialized view|foreign table|schema|database) (.+)$",
    # SQLite
    r"^no such (?:table|column): (.+)$",
    # MySQL and MariaDB
    r"^Table '([^']+)' doesn't exist",
    r"^Unknown column '([^']+)' in ",
    # SQL Server, Oracle, Snowflake
    r"Invalid (?:object|column) name '([^']+)'",
    r"^ORA-00904: (.+): invalid identifier",
    r"invalid identifier '([^']+)'",
)
"""Messages that name a table or a column as the DAG's author wrote it, and hold nothing else."""
