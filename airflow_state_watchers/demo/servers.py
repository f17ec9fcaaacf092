"""An S3 that speaks HTTP on loopback, as a process of its own."""

from __future__ import annotations

import json
import socket
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP
from typing import TYPE_CHECKING, Any, ClassVar

import httpx

from airflow_state_watchers.demo.processes import KeptProcess, Port, tail

if TYPE_CHECKING:
    from typing_extensions import Self

REGION = "us-east-1"
ACCESS_KEY, SECRET_KEY = "demo", "demo-secret"  # neither server looks at them
THREADS = 8


class S3Server:
    """A context manager; subclasses say which program. The same port through all restarts, the objects in memory.

    :raises ProcessDied: it ended; the message has the end of its log.
    """

    needs: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="s3-", ignore_cleanup_errors=True)
        self._port = Port()
        self._process: KeptProcess | None = None
        self.log = Path(self._directory.name) / "s3.log"
        self.endpoint_url = f"http://127.0.0.1:{self._port.number}"

    def command(self, port: int) -> Sequence[str]:
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def start(self, timeout: float = 60) -> None:
        """Start the server, empty, and wait until it answers."""
        missing = [name for name in self.needs if find_spec(name) is None]
        if missing:
            extra = "airflow-provider-state-watchers[demo]"
            raise ModuleNotFoundError(f"{', '.join(missing)} not installed; the demo needs: pip install '{extra}'")
        self._process = KeptProcess("s3", self.command(self._port.number), log=self.log)
        deadline = time.monotonic() + timeout
        while not self._answers():
            self._process.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"the S3 server does not answer after {timeout:.0f} s\n{tail(self.log)}")
            time.sleep(0.05)

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def kill(self) -> None:
        """``kill -9``; the objects are gone with it."""
        assert self._process
        self._process.signal(SIGKILL, "tree")
        self._process.wait(10)
        self._process.close()

    def freeze(self) -> None:
        """Let requests hang: connections are accepted and nothing answers."""
        assert self._process
        self._process.signal(SIGSTOP, "tree")

    def thaw(self) -> None:
        assert self._process
        self._process.signal(SIGCONT, "tree")

    def close(self) -> None:
        if self._process:
            self.kill()
        self._port.release()
        self._directory.cleanup()

    @property
    def connection(self) -> dict[str, Any]:
        """An Airflow connection to this server, as a dictionary."""
        extra = {"endpoint_url": self.endpoint_url, "region_name": REGION}
        return {"conn_type": "aws", "login": ACCESS_KEY, "password": SECRET_KEY, "extra": extra}

    @property
    def env(self) -> dict[str, str]:
        """What makes this server ``aws_default``, as environment of an Airflow."""
        return {"AIRFLOW_CONN_AWS_DEFAULT": json.dumps(self.connection)}

    @cached_property
    def client(self) -> Any:
        """A boto3 client of this server; safe to share among threads."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint_url,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            config=Config(max_pool_connections=THREADS, proxies={}),
        )

    def create_bucket(self, bucket: str) -> None:
        self.client.create_bucket(Bucket=bucket)

    def put(self, bucket: str, key: str, body: bytes = b"") -> None:
        self.client.put_object(Bucket=bucket, Key=key, Body=body)

    def put_many(self, bucket: str, objects: Mapping[str, bytes] | Iterable[str], *, threads: int = THREADS) -> int:
        """Upload objects, bodies by key or empty ones by key alone, as fast as the server takes them; returns how many."""
        bodies = objects if isinstance(objects, Mapping) else dict.fromkeys(objects, b"")
        with ThreadPoolExecutor(threads) as pool:
            return sum(1 for _ in pool.map(lambda key: self.put(bucket, key, bodies[key]), bodies))

    def delete(self, bucket: str, key: str) -> None:
        self.client.delete_object(Bucket=bucket, Key=key)

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        """Return the keys of all objects below a prefix."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [found["Key"] for page in pages for found in page.get("Contents", ())]

    def _answers(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self._port.number)) == 0


class MotoServer(S3Server):
    """Moto: some 300 uploads a second, and :meth:`plant`."""

    needs = ("boto3", "moto", "flask", "flask_cors")

    def command(self, port: int) -> Sequence[str]:
        return [sys.executable, str(Path(__file__).with_name("moto_server.py")), str(port)]

    def plant(self, bucket: str, keys: Iterable[str], *, stamp: datetime | None = None, size: int = 0) -> None:
        """Store objects without uploading them: thousands a second, with any ``LastModified``."""
        seconds = stamp.timestamp() if stamp else None
        objects = [(bucket, key, size, seconds) for key in keys]
        httpx.post(f"{self.endpoint_url}/plant", json=objects, timeout=300, trust_env=False).raise_for_status()
