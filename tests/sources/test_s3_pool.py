"""Watchers that use one connection in the same way share a client."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest

from airflow_state_watchers.exceptions import SourceDenied
from airflow_state_watchers.sources.s3_place import S3Place
from airflow_state_watchers.sources.s3_pool import ClientPool
from tests.sources.conftest import Lake, MakeSource, client_of, keys_of
from tests.sources.faulty_proxy import FaultyProxy, error

PLACE = S3Place(
    bucket="lake", prefix="a/", aws_conn_id="lake_conn", region_name=None, verify=None, botocore_config=None, timeout=9
)


class Client:
    def __init__(self) -> None:
        self.open = False

    async def __aenter__(self) -> Client:
        self.open = True
        return self

    async def __aexit__(self, *reason: object) -> None:
        self.open = False


class Factory:
    def __init__(self) -> None:
        self.made: list[Client] = []
        self.threads: set[threading.Thread] = set()
        self.error: Exception | None = None

    def __call__(self, place: S3Place) -> Any:
        self.threads.add(threading.current_thread())
        if self.error is not None:
            raise self.error
        self.made.append(Client())
        return self.made[-1]


async def test_two_places_of_one_connection_share_a_client_made_in_a_thread() -> None:
    pool, factory = ClientPool(), Factory()
    one, other = await asyncio.gather(pool.lease(PLACE, factory), pool.lease(replace(PLACE, prefix="b/"), factory))
    assert one is other
    assert len(factory.made) == 1
    assert threading.main_thread() not in factory.threads
    await pool.release(one)
    assert one.client.open
    await pool.release(other)
    assert not factory.made[0].open


@pytest.mark.parametrize(
    "change",
    [
        {"aws_conn_id": None},
        {"region_name": "eu-west-1"},
        {"verify": False},
        {"botocore_config": {"s3": {"addressing_style": "path"}}},
        {"timeout": 5},
    ],
)
async def test_another_way_to_connect_is_another_client(change: dict[str, Any]) -> None:
    pool, factory = ClientPool(), Factory()
    leased = [await pool.lease(place, factory) for place in (PLACE, replace(PLACE, **change))]
    assert len(factory.made) == 2
    for each in leased:
        await pool.release(each)


async def test_a_client_that_was_retired_is_closed_when_the_last_one_has_left_it() -> None:
    pool, factory = ClientPool(), Factory()
    one, other = await pool.lease(PLACE, factory), await pool.lease(PLACE, factory)
    pool.retire(one)
    fresh = await pool.lease(PLACE, factory)
    assert fresh is not other
    await pool.release(one)
    assert other.client.open
    await pool.release(other)
    assert [client.open for client in factory.made] == [False, True]
    await pool.release(fresh)


async def test_a_failure_names_the_place_of_whoever_asked_and_the_next_one_tries_again() -> None:
    pool, factory = ClientPool(), Factory()
    factory.error = SourceDenied("s3://lake/a/: no credentials")
    places = [PLACE, replace(PLACE, bucket="other", prefix="b/")]
    results = await asyncio.gather(*(pool.lease(place, factory) for place in places), return_exceptions=True)
    assert [str(result) for result in results] == ["s3://lake/a/: no credentials", "s3://other/b/: no credentials"]
    assert all(type(result) is SourceDenied for result in results)
    factory.error = None
    await pool.release(await pool.lease(PLACE, factory))
    assert not factory.made[0].open


async def test_one_that_stops_waiting_does_not_stop_the_others() -> None:
    pool, factory = ClientPool(), Factory()
    gate = threading.Event()

    def slow(place: S3Place) -> Any:
        gate.wait(5)
        return factory(place)

    first = asyncio.ensure_future(pool.lease(PLACE, slow))
    second = asyncio.ensure_future(pool.lease(PLACE, slow))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    gate.set()
    shared = await second
    assert shared.users == 1
    await pool.release(shared)
    assert not factory.made[0].open


async def test_sources_share_a_client_and_all_change_it_when_one_finds_its_credentials_expired(
    lake: Lake, source: MakeSource, proxy: FaultyProxy
) -> None:
    lake.put("a/1")
    lake.put("b/1")
    one, other = source("a/"), source("b/")
    assert (await keys_of(one), await keys_of(other)) == (["a/1"], ["b/1"])
    before = client_of(one)
    assert client_of(other) is before
    proxy.faults = [error(403, "ExpiredToken")]
    assert await keys_of(one) == ["a/1"]
    assert client_of(one) is not before
    assert await keys_of(other) == ["b/1"]
    assert client_of(other) is client_of(one)
