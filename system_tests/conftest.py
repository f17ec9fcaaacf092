"""A real Airflow and a real S3 server for the system tests.

Starting an Airflow takes 15 to 25 s, so one is shared by all tests that use the fixture ``airflow``. They may do to it
what they like: after each test its DAG files are removed and pieces that were stopped or killed are started again. A
test that needs another database or configuration calls ``start_airflow``.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from airflow_state_watchers.demo.airflow import Airflow
from airflow_state_watchers.demo.pieces import DEFAULT
from airflow_state_watchers.demo.servers import MotoServer

STATE_REFRESH = 10
"""Seconds; the default of five minutes is longer than a test should take."""


def pytest_configure(config: pytest.Config) -> None:
    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)  # unlike the default, lets fixtures and temporary directories be cleaned up

    signal.signal(signal.SIGTERM, leave)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def shared_s3() -> Iterator[MotoServer]:
    with MotoServer() as server:
        yield server


@pytest.fixture(scope="session")
def shared_airflow(shared_s3: MotoServer) -> Iterator[Airflow]:
    with Airflow(env=shared_s3.env, config={"state_watchers": {"state_refresh": STATE_REFRESH}}) as airflow:
        yield airflow


@pytest.fixture
def airflow(shared_airflow: Airflow) -> Iterator[Airflow]:
    """All pieces run and are healthy; DAG files of other tests are gone, what they left in the database is not."""
    yield shared_airflow
    for path in (shared_airflow.home / "dags").glob("*.py"):
        path.unlink()
    shared_airflow.restore(DEFAULT)


@pytest.fixture
def start_airflow(shared_s3: MotoServer) -> Iterator[Callable[..., Airflow]]:
    """Call it with the arguments of :class:`Airflow` for one of your own, for this test."""
    with ExitStack() as stack:

        def start(*, env: dict[str, str] | None = None, **arguments: Any) -> Airflow:
            return stack.enter_context(Airflow(env={**shared_s3.env, **(env or {})}, **arguments))

        yield start


BUCKETS = count(1)


@pytest.fixture
def s3(shared_s3: MotoServer) -> MotoServer:
    return shared_s3


@pytest.fixture
def bucket(s3: MotoServer) -> str:
    """A bucket of its own for each test, empty."""
    name = f"lake-{os.getpid()}-{next(BUCKETS)}"
    s3.create_bucket(name)
    return name
