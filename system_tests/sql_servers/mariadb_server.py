"""A MariaDB of one's own: Debian's binaries, unpacked by ``dev/get_mariadb.sh``, on a port of 127.0.0.1."""

from __future__ import annotations

import getpass
import os
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

import pymysql

from airflow_state_watchers.demo.processes import KeptProcess, Port, ProcessDied, tail

PLACE = Path(__file__).parents[2] / ".venv-mariadb"
TABLES = ("system_tables.sql", "performance_tables.sql", "system_tables_data.sql")
"""Called mysql_ or mariadb_ so, as the release likes it."""
PASSWORD = "shop-secret"
USERS = f"""CREATE DATABASE IF NOT EXISTS shop CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS shop@'%' IDENTIFIED BY '{PASSWORD}';
GRANT ALL ON *.* TO shop@'%' WITH GRANT OPTION;
"""


class MariadbServer:
    """A server with a database ``shop`` and a user ``shop``. Data go with it.

    Raises ``FileNotFoundError`` if it has not been unpacked: a run without it must not look like one that passed.
    """

    def __init__(self) -> None:
        self._program = PLACE / "usr" / "sbin" / "mariadbd"
        if not self._program.exists():
            raise FileNotFoundError(f"{self._program}: run  make mariadb  once")
        self._port = Port()
        self._directory = tempfile.TemporaryDirectory(prefix="mariadb-", ignore_cleanup_errors=True)
        self._data = Path(self._directory.name) / "data"
        self.log = Path(self._directory.name) / "log"
        self._process: KeptProcess | None = None

    @property
    def port(self) -> int:
        return self._port.number

    def __enter__(self) -> MariadbServer:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def start(self) -> None:
        if not self._data.exists():
            self._data.mkdir()
            self._bootstrap()
        users = Path(self._directory.name) / "users.sql"
        users.write_text(USERS)
        options = [f"--port={self.port}", "--bind-address=127.0.0.1", "--skip-name-resolve", f"--init-file={users}"]
        options += [f"--socket={self._data}/socket", f"--pid-file={self._data}/pid", "--default-time-zone=+02:00"]
        self._process = KeptProcess("mariadbd", self._command(*options), log=self.log, env=self._environment())
        deadline = time.monotonic() + 30
        while not self._listens():
            self._process.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"MariaDB is not ready after 30 s\n{tail(self.log)}")
            time.sleep(0.05)

    def kill(self) -> None:
        """``kill -9``"""
        if self._process:
            self._process.close()
            self._process = None

    def close(self) -> None:
        self.kill()
        self._port.release()
        self._directory.cleanup()

    def connect(self, **changes: Any) -> pymysql.Connection[Any]:
        place = {"host": "127.0.0.1", "port": self.port, "user": "shop", "password": PASSWORD, "database": "shop"}
        return pymysql.connect(**{**place, "autocommit": True, **changes})

    @property
    def airflow_connection(self) -> dict[str, Any]:
        """What an Airflow connection to it is made of, as JSON-plain fields."""
        place = {"host": "127.0.0.1", "port": self.port, "login": "shop", "password": PASSWORD, "schema": "shop"}
        return {"conn_type": "mysql", **place}

    def _command(self, *options: str) -> list[str]:
        share = PLACE / "usr" / "share" / "mysql"
        common = [
            "--no-defaults",
            f"--user={getpass.getuser()}",
            f"--datadir={self._data}",
            f"--tmpdir={self._directory.name}",  # a server that starts removes what another has in the same one
            f"--lc-messages-dir={share}",
        ]
        return [
            str(self._program),
            *common,
            "--innodb-flush-log-at-trx-commit=2",
            "--innodb-log-file-size=16M",
            *options,
        ]

    def _environment(self) -> dict[str, str]:
        libraries = [str(folder) for folder in (*PLACE.glob("usr/lib/*-linux-gnu"), *PLACE.glob("lib/*-linux-gnu"))]
        return {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries), "TZ": "Europe/Berlin"}

    def _bootstrap(self) -> None:
        share = PLACE / "usr" / "share" / "mysql"
        script = Path(self._directory.name) / "tables.sql"
        tables = "\n".join(next(share.glob(f"m*_{name}")).read_text() for name in TABLES)
        script.write_text(f"CREATE DATABASE mysql;\nUSE mysql;\n{tables}")
        shell = [
            "sh",
            "-c",
            'script=$1; shift; exec "$@" < "$script"',
            "sh",
            str(script),
            *self._command("--bootstrap"),
        ]
        with KeptProcess("mariadbd --bootstrap", shell, log=self.log, env=self._environment()) as process:
            if process.wait(60):
                raise ProcessDied(f"mariadbd --bootstrap: exit code {process.returncode}\n{tail(self.log)}")

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
