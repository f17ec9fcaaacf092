"""Faults while several pages are on their way at once: of the ranges of a large listing, which share one client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from airflow_state_watchers.sources import s3_client
from airflow_state_watchers.sources.s3_place import S3Place
from tests.sources.conftest import Define, Lake, Watch
from tests.sources.faulty_proxy import Fault, FaultyProxy, error, reset, silence
from tests.sources.watching import Watched

RANGES = 4
STOOD = [f"in/{number:03}" for number in range(8 * RANGES * 3 + 6)]
"""So many that the next listing is split."""
NEW = [f"{key}-new" for key in STOOD[::30]]


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "3")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[S3Place]:
    """For what clients were made."""
    made: list[S3Place] = []
    build_client = s3_client.build_client

    def build(place: S3Place) -> object:
        made.append(place)
        return build_client(place)

    monkeypatch.setattr(s3_client, "build_client", build)
    return made


@asynccontextmanager
async def split(watch: Watch, lake: Lake) -> AsyncIterator[Watched]:
    """Watch many objects; what comes next is listed in ranges."""
    async with watch(lookback=0) as watched:
        for key in STOOD:
            lake.put(key)
        assert await watched.poll() == STOOD
        assert await watched.poll() == []
        assert len([target for target in watched.proxy.requests if "start-after" in target]) == RANGES - 1
        for key in NEW:
            lake.put(key, at=watched.clock.now())
        yield watched


FAULTS: dict[str, tuple[Fault, str]] = {
    "SlowDown": (error(503, "SlowDown"), "SourceUnavailable"),
    "reset": (reset(100), "SourceUnavailable"),
    "ExpiredToken": (error(400, "ExpiredToken"), "SourceDenied"),
    "AccessDenied": (error(403, "AccessDenied"), "SourceDenied"),
}


@pytest.mark.parametrize("where", ["start-after", "continuation-token", "list-type"])
@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_in_ranges(name: str, where: str, lake: Lake, watch: Watch, proxy: FaultyProxy) -> None:
    fault, kind = FAULTS[name]
    async with split(watch, lake) as watched:
        root = watched.stored()
        proxy.choose = lambda target: fault if where in target else None
        for number in range(1, 4):
            assert await watched.poll() == []
            assert watched.stored() == root
            assert watched.health["consecutive_failures"] == number
            assert watched.health["last_error"]["kind"] == kind
            assert len(proxy.requests) <= 1 + 4 * RANGES, "a hot loop"
        proxy.choose = None
        assert await watched.poll() == NEW
        assert await watched.poll() == []


async def test_one_range_that_hangs(lake: Lake, watch: Watch, proxy: FaultyProxy) -> None:
    async with split(watch, lake) as watched:
        root = watched.stored()
        hung: list[str] = []

        def hang(target: str) -> Fault | None:
            if "start-after" in target:
                hung.append(target)
            return silence if len(hung) == 2 and target == hung[1] else None

        watched.source.calls.place = replace(watched.source.calls.place, timeout=1.0)
        proxy.choose = hang
        assert await watched.poll() == []
        assert watched.stored() == root
        assert "within 1 s" in watched.health["last_error"]["message"]
        proxy.choose = None
        assert await watched.poll() == NEW


async def test_credentials_that_run_out_and_are_renewed_cost_no_poll_and_one_client(
    lake: Lake, watch: Watch, proxy: FaultyProxy, define: Define, made: list[S3Place]
) -> None:
    async with split(watch, lake) as watched:
        define("lake_conn", proxy.url, login="AKIDNEW")
        expired = error(400, "ExpiredToken")
        seen: list[str] = []

        def choose(target: str) -> Fault | None:
            seen.append(target)
            return expired if len(seen) > 2 and proxy.keys[-1] == "AKIDLAKE" else None

        proxy.choose = choose
        made.clear()
        assert await watched.poll() == NEW
        assert watched.health["last_error"] is None
        assert len(made) == 1
