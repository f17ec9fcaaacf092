"""Three S3 servers, each started once, and sources that reach them through Airflow connections."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from typing import Any

import boto3
import pytest
from botocore.config import Config

from airflow_state_watchers.demo.servers import ACCESS_KEY, REGION, SECRET_KEY, MotoServer, S3Server
from airflow_state_watchers.sources.s3 import S3Source
from system_tests.s3_servers.deviations import conforms
from system_tests.s3_servers.looking import MakeSource
from system_tests.s3_servers.servers import LocalStack, MiniStack

BUCKETS = count(1)

Conforms = Callable[[str, object, object], None]
"""Takes a topic of ``deviations.py``, what was seen, and what is right."""
Define = Callable[..., str]
"""Defines an Airflow connection to the server, in which fields can be replaced, and returns its id."""


@pytest.fixture(scope="session", params=[MotoServer, MiniStack, LocalStack], ids=["Moto", "MiniStack", "LocalStack"])
def server(request: pytest.FixtureRequest) -> Iterator[S3Server]:
    with request.param() as server:
        yield server


@pytest.fixture(name="conforms")
def conforms_of_server(server: S3Server) -> Conforms:
    name = type(server).__name__.removesuffix("Server")
    return lambda topic, seen, right: conforms(name, topic, seen, right)


@pytest.fixture(scope="session")
def client(server: S3Server) -> Any:
    """A boto3 client that takes the first answer."""
    return boto3.client(
        "s3",
        endpoint_url=server.endpoint_url,
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        config=Config(proxies={}, retries={"total_max_attempts": 1}),
    )


@pytest.fixture
def new_bucket(server: S3Server) -> Callable[[], str]:
    def new_bucket() -> str:
        name = f"lake-{os.getpid()}-{next(BUCKETS)}"
        server.create_bucket(name)
        return name

    return new_bucket


@pytest.fixture
def bucket(new_bucket: Callable[[], str]) -> str:
    """A bucket of its own for each test, empty."""
    return new_bucket()


@pytest.fixture(autouse=True)
def only_airflow_has_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide what the machine of whoever runs the tests has."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def define(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Define:
    def define(conn_id: str, *, extra: dict[str, Any] | None = None, **fields: Any) -> str:
        connection = {**server.connection, **fields}
        connection["extra"] = {**connection["extra"], **(extra or {})}
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(connection))
        return conn_id

    return define


@pytest.fixture
async def source(bucket: str, define: Define) -> AsyncIterator[MakeSource]:
    """Make sources that look at the test's bucket and take the first answer."""
    define("lake_conn")
    made: list[S3Source] = []

    def make(prefix: str = "", **arguments: Any) -> S3Source:
        arguments.setdefault("aws_conn_id", "lake_conn")
        arguments.setdefault("botocore_config", {"retries": {"total_max_attempts": 1}})
        made.append(S3Source(arguments.pop("bucket_name", bucket), prefix=prefix, **arguments))
        return made[-1]

    yield make
    for each in made:
        await each.aclose()
