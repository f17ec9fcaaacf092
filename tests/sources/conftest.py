"""An S3 server over HTTP, a proxy before it that can break its answers, and connections that lead to them."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.s3.models import s3_backends
from werkzeug.serving import make_server

from airflow_state_watchers.core.position import Item
from airflow_state_watchers.ports import Scan
from airflow_state_watchers.sources.s3 import S3Source
from airflow_state_watchers.testing import FrozenClock
from tests.sources.aws_uploads import AwsUploads
from tests.sources.faulty_proxy import FaultyProxy
from tests.sources.watching import dated, watch_pauses, watching

BUCKET = "lake"
SECRET = "lake-secret"
STAMP = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)

FAR = datetime(2100, 1, 1, tzinfo=timezone.utc)

Define = Callable[..., str]
"""Defines an Airflow connection (id, endpoint, and more of its fields) and returns its id."""
MakeSource = Callable[..., S3Source]
Watch = Callable[..., Any]
"""Begins a watcher of the lake with these arguments: ``async with watch(...) as watched``."""


class Lake:
    """A bucket of moto's, filled without a detour over HTTP and at times of the test's choosing."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self._backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        self._backend.reset()
        self._backend.create_bucket(BUCKET, "us-east-1")

    @property
    def url(self) -> str:
        return f"http://{self.address[0]}:{self.address[1]}"

    def create(self, bucket: str) -> None:
        self._backend.create_bucket(bucket, "us-east-1")

    def put(self, key: str, body: bytes = b"x", at: datetime = STAMP, *, bucket: str = BUCKET) -> None:
        stored = self._backend.put_object(bucket, key, body, disable_notification=True)
        stored.last_modified = at.astimezone(timezone.utc).replace(tzinfo=None)

    def delete(self, key: str) -> None:
        self._backend.delete_object(BUCKET, key)


@pytest.fixture(scope="session")
def s3_address() -> Iterator[tuple[str, int]]:
    """Serve moto over HTTP in a thread."""
    server = make_server(
        "127.0.0.1",
        0,
        DomainDispatcherApplication(create_backend_app),
        threaded=True,
        request_handler=MotoRequestHandler,
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield "127.0.0.1", server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def lake(s3_address: tuple[str, int]) -> Lake:
    return Lake(s3_address)


@pytest.fixture
async def proxy(lake: Lake) -> AsyncIterator[FaultyProxy]:
    async with FaultyProxy(lake.address) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def only_airflow_has_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Hide what the machine of whoever runs the tests has: profiles, keys, a role of its own."""
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_PROFILE",
        "AWS_DEFAULT_REGION",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def define(monkeypatch: pytest.MonkeyPatch) -> Define:
    def define(conn_id: str, endpoint: str, *, login: str = "AKIDLAKE", **extra: Any) -> str:
        extra = {"endpoint_url": endpoint, "region_name": "us-east-1", **extra}
        value = {"conn_type": "aws", "login": login, "password": SECRET, "extra": extra}
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(value))
        return conn_id

    return define


@pytest.fixture
async def source(proxy: FaultyProxy, define: Define) -> AsyncIterator[MakeSource]:
    """Make sources that look through the proxy with connection ``lake_conn`` and do not wait to try again."""
    define("lake_conn", proxy.url)
    made: list[S3Source] = []

    def make(prefix: str = "", **arguments: Any) -> S3Source:
        arguments.setdefault("aws_conn_id", "lake_conn")
        arguments.setdefault("botocore_config", {"retries": {"total_max_attempts": 1}})
        made.append(S3Source(arguments.pop("bucket_name", BUCKET), prefix=prefix, **arguments))
        return made[-1]

    yield make
    for each in made:
        await each.aclose()


@pytest.fixture
def clock() -> FrozenClock:
    """The clock of watchers and of the S3 server that they see, an hour after ``STAMP``."""
    return FrozenClock(STAMP + timedelta(hours=1))


@pytest.fixture
def uploads(clock: FrozenClock, proxy: FaultyProxy) -> AwsUploads:
    uploads, date = AwsUploads(BUCKET, clock), dated(clock)
    proxy.dress = lambda answer: date(uploads.dress(answer))
    return uploads


@pytest.fixture
def watch(proxy: FaultyProxy, define: Define, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> Watch:
    define("lake_conn", proxy.url)
    pauses = watch_pauses(monkeypatch)
    return lambda **arguments: watching(proxy, pauses, **{"clock": clock, "bucket_name": BUCKET, **arguments})


async def look(source: S3Source, low: datetime | None = None, high: datetime = FAR) -> list[Item]:
    scan = await source.open()
    return [item async for items in scan.pages(low, high) for item in items]


async def rest_of(scan: Scan) -> None:
    async for _ in scan.pages(None, FAR):
        pass


async def keys_of(source: S3Source) -> list[str]:
    return [item.position.tiebreak for item in await look(source)]


def stored(lake: Lake, uri: str) -> bytes | None:
    """The content of an object of the lake's."""
    found = lake._backend.get_object(BUCKET, uri.removeprefix(f"s3://{BUCKET}/"))
    return None if found is None else bytes(found.value)


def client_of(source: S3Source) -> Any:
    """The client that a source has leased."""
    assert source.calls._shared is not None
    return source.calls._shared.client
