"""How to connect to the PostgreSQL of an Airflow connection.

Everything here runs in a worker thread and this module is imported there: the Postgres provider takes a second to import, and
inside a triggerer the question for a connection is answered by the loop, which must be free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow.providers.postgres.hooks.postgres import PostgresHook
from airflow.sdk.exceptions import AirflowNotFoundException
from psycopg import AsyncConnection
from psycopg.conninfo import make_conninfo
from psycopg.pq import Conninfo

from airflow_state_watchers.exceptions import SourceDenied, SourceError, SourceMissing, SourceUnavailable

OURS: Mapping[str, Any] = {
    "client_encoding": "UTF8",
    "connect_timeout": 10,
    "fallback_application_name": "airflow-state-watchers",  # what the connection or a service file names comes first
    # A firewall that forgot a quiet connection is noticed within a minute.
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""What libpq is told where the connection does not say otherwise."""

__all__ = ["AsyncConnection", "Target", "find_target"]


@dataclass(frozen=True, slots=True)
class Target:
    """Where to connect to. ``conninfo`` holds the password, so it is never shown; ``place`` tells one server and user from
    another and stays the same when a token is renewed."""

    conninfo: str = field(repr=False)
    place: str = field(repr=False)


def find_target(conn_id: str, hook_params: Mapping[str, Any]) -> Target:
    """Return how to connect, by the Airflow connection as it is now. Blocks.

    ``hook_params`` are those of ``PostgresHook``; ``database`` and ``options`` matter here. Raises :class:`SourceError`, whose
    text is made of names only.
    """
    try:
        hook = PostgresHook(postgres_conn_id=conn_id, **hook_params)
        connection = hook.get_connection(conn_id)
        options = _options(hook, connection)
        place = make_conninfo(**{**options, "password": None} if _by_token(connection) else options)
        if _by_token(connection):
            login, password, port = hook.get_iam_token(connection)
            options.update(user=login, password=password, port=port)
        return Target(make_conninfo(**options), place)
    except SourceError:
        raise
    except Exception as error:
        # Without its cause: the text of such an error may repeat what the connection holds.
        raise _explain(error, conn_id) from None


def _options(hook: PostgresHook, connection: Any) -> dict[str, Any]:
    """Return what libpq is told, in the order of precedence that the hook keeps."""
    options = {
        **OURS,
        "host": connection.host,
        "port": connection.port,
        "user": connection.login,
        "password": connection.password,
        "dbname": hook.database or connection.schema,
        "options": hook.options,
    }
    for name, value in connection.extra_dejson.items():
        if name not in hook.ignored_extra_options and not name.startswith("sqlalchemy_"):
            options[name] = int(value) if isinstance(value, bool) else value
    _check_names(options, connection.conn_id)
    return {name: value for name, value in options.items() if value not in (None, "")}


def _check_names(options: Mapping[str, Any], conn_id: str) -> None:
    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    strange = sorted(set(options) - known)
    if strange:
        raise SourceDenied(
            f"The extra of connection {conn_id!r} has {', '.join(strange)}, which libpq does not know. "
            "Correct it; Airflow's own Postgres hook does not take it either."
        )


def _by_token(connection: Any) -> bool:
    return bool(connection.extra_dejson.get("iam", False))


def _explain(error: Exception, conn_id: str) -> SourceError:
    kind = type(error).__name__
    if isinstance(error, AirflowNotFoundException):
        return SourceMissing(f"Airflow has no connection {conn_id!r}. Create it, or change conn_id.")
    if isinstance(error, PermissionError):
        return SourceDenied(f"Airflow does not let this triggerer read connection {conn_id!r}. Allow it.")
    if isinstance(error, (OSError, TimeoutError)):
        return SourceUnavailable(f"Connection {conn_id!r} cannot be read now ({kind}). It is tried again.")
    return SourceDenied(f"Connection {conn_id!r} cannot be used ({kind}). Check its fields, its extra and hook_params.")
