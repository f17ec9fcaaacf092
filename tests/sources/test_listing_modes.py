"""Whole watchers that list less than everything, or in ranges, on an S3 server over HTTP with a clock of the test's own."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.sources.conftest import Lake, Watch
from tests.sources.faulty_proxy import FaultyProxy
from tests.sources.watching import STEP, Watched

HOUR = 3600.0


def listings(proxy: FaultyProxy) -> list[dict[str, str]]:
    """The queries of the LIST calls of the last poll."""
    queries = [parse_qs(urlsplit(target).query, keep_blank_values=True) for target in proxy.requests]
    return [{name: values[0] for name, values in query.items()} for query in queries if "list-type" in query]


def put(lake: Lake, watched: Watched, *keys: str, age: float = 0) -> None:
    for key in keys:
        lake.put(key, at=watched.clock.now() - timedelta(seconds=age))


async def pass_time(watched: Watched, seconds: float) -> list[str]:
    """Poll until so much time has passed; return what was delivered meanwhile."""
    delivered: list[str] = []
    for _ in range(int(seconds // STEP) + 1):
        delivered += await watched.poll()
    return delivered


# order="key"


async def test_keys_in_order_cost_one_call_however_many_are_known(
    lake: Lake, watch: Watch, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "3")
    async with watch(order="key", lookback=600, upload_ttl=0) as watched:
        for batch in range(12):
            keys = [f"in/{batch:03}{letter}" for letter in "abc"]
            put(lake, watched, *keys)
            assert await watched.poll() == keys
        assert await pass_time(watched, 1200) == []
        (query,) = listings(proxy)[1:]
        assert query["start-after"] == "in/011c"
        put(lake, watched, "in/012a")
        assert await watched.poll() == ["in/012a"]
        assert len(listings(proxy)) == 2, "the clock's, and one page"


async def test_the_place_in_the_order_of_keys_survives_a_restart(lake: Lake, watch: Watch, proxy: FaultyProxy) -> None:
    async with watch(order="key", lookback=600) as watched:
        put(lake, watched, "in/1", "in/2")
        assert await watched.poll() == ["in/1", "in/2"]
        assert await pass_time(watched, 1200) == []
        put(lake, watched, "in/3")
        assert await watched.poll() == ["in/3"]
        watched.harness.restart()
        assert await watched.poll() == []
        assert [query.get("start-after") for query in listings(proxy)] == ["in/2"]


async def test_a_late_smaller_key_is_delivered_behind_the_place_and_missed_before_it(lake: Lake, watch: Watch) -> None:
    async with watch(order="key", lookback=600) as watched:
        put(lake, watched, "in/b")
        assert await watched.poll() == ["in/b"]
        assert await pass_time(watched, 1200) == []
        put(lake, watched, "in/d")
        assert await watched.poll() == ["in/d"]
        put(lake, watched, "in/c", "in/a")
        assert await watched.poll() == ["in/c"], "in/a lies before in/b, which is older than lookback"
        assert await watched.poll() == []


async def test_a_longer_lookback_begins_at_the_first_key_again(lake: Lake, watch: Watch, proxy: FaultyProxy) -> None:
    async with watch(order="key", lookback=60) as watched:
        put(lake, watched, "in/b")
        assert await watched.poll() == ["in/b"]
        assert await pass_time(watched, HOUR + 200) == [], "the frontier is stored by now, and the place with it"
        store = watched.harness.store
    async with watch(order="key", lookback=2 * HOUR) as watched:
        watched.harness.store = store
        put(lake, watched, "in/a")
        assert await watched.poll() == ["in/a"]
        assert all("start-after" not in query for query in listings(proxy))


async def test_a_watermark_moved_back_reads_from_the_first_key(lake: Lake, watch: Watch) -> None:
    async with watch(order="key", lookback=60) as watched:
        put(lake, watched, "in/a")
        start = watched.clock.now()
        assert await watched.poll() == ["in/a"]
        put(lake, watched, "in/b")
        assert await watched.poll() == ["in/b"]
        assert await pass_time(watched, 600) == []
        root = watched.stored()
        watched.harness.store.set("state_watchers:s3://lake/in/", {**root, "watermark": start.isoformat()})
        assert await pass_time(watched, 600) == ["in/a", "in/b"]


async def test_a_watcher_may_change_its_way_of_listing(lake: Lake, watch: Watch) -> None:
    store: Any = None
    delivered = []
    for number, way in enumerate([{}, {"order": "key"}, {}, {"order": "key"}]):
        async with watch(lookback=60, **way) as watched:
            if store is not None:
                watched.harness.store = store
            put(lake, watched, f"in/{number}")
            delivered += await watched.poll() + await watched.poll()
            delivered += await pass_time(watched, 200)
            store = watched.harness.store
    assert delivered == ["in/0", "in/1", "in/2", "in/3"]


# date_pattern


async def test_only_living_partitions_are_listed(lake: Lake, watch: Watch, proxy: FaultyProxy) -> None:
    async with watch(date_pattern="dt=%Y-%m-%d/") as watched:
        today, old = "in/dt=2026-11-01/a", "in/dt=2026-09-01/a"
        put(lake, watched, today, old, "in/other/a")
        assert sorted(await watched.poll()) == [old, today], "what is in no partition is not the source's"
        put(lake, watched, "in/dt=2026-10-31/b", "in/dt=2026-11-02/b", "in/dt=2026-09-01/b")
        assert await watched.poll() == ["in/dt=2026-10-31/b", "in/dt=2026-11-02/b"]
        days = ["2026-10-30", "2026-10-31", "2026-11-01", "2026-11-02"]
        assert sorted(query["prefix"] for query in listings(proxy)) == [
            f"in/dt={day}/" for day in days[-len(listings(proxy)) :]
        ]
        watched.harness.restart()
        assert await watched.poll() == []


@pytest.mark.parametrize(
    ("way", "days"), [({"order": "key"}, 31), ({"date_pattern": "%Y-%m-%d/%H/"}, 31), ({}, 3)], ids=str
)
async def test_a_month_of_idle_hours_is_flat(
    way: dict[str, Any], days: int, lake: Lake, watch: Watch, proxy: FaultyProxy
) -> None:
    async with watch(**way) as watched:
        put(lake, watched, "in/2026-11-01/12/a")
        assert await watched.poll() == ["in/2026-11-01/12/a"]
        calls, sizes = [], []
        for _ in range(days * 8):
            watched.clock.advance(3 * HOUR - STEP)
            assert await watched.poll() == []
            calls.append(len(proxy.requests))
            sizes.append(sum(map(len, watched.harness.store.data.values())))
        assert max(calls[2:]) == min(calls[2:])
        assert max(sizes[8:]) <= 1.1 * min(sizes[8:])
        watched.harness.restart()
        put(lake, watched, watched.clock.now().strftime("in/%Y-%m-%d/%H/b"))
        assert len(await watched.poll()) == 1
        assert len(proxy.requests) <= max(calls) + 1


# Ranges


async def test_a_large_prefix_is_listed_in_ranges_and_nothing_is_lost_or_repeated(
    lake: Lake, watch: Watch, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "5")
    keys = [f"in/{number:03}\N{GRINNING FACE}+ %" for number in range(200)]
    async with watch(upload_ttl=0) as watched:
        put(lake, watched, *keys)
        assert sorted(await watched.poll()) == keys
        for number in range(3):
            new = [f"in/{place}-{number}" for place in ("", "050", "100", "199", "zzz")]
            put(lake, watched, *new)
            lake.delete(keys[50 + number])
            assert sorted(await watched.poll()) == sorted(new)
            starts = [query for query in listings(proxy) if "start-after" in query]
            assert len(starts) == 3, "four ranges"
            assert len(listings(proxy)) <= 200 // 5 + 10
        assert await watched.poll() == []
        watched.harness.restart()
        assert await watched.poll() == []


# Overwrites


async def test_an_overwrite_is_a_new_version_or_is_left_out_for_at_least_the_lookback(lake: Lake, watch: Watch) -> None:
    for overwrites, expected in [("deliver", [["in/a"]] * 3), ("ignore", [["in/a"], [], []])]:
        async with watch(overwrites=overwrites, lookback=600, name=overwrites, start="latest") as watched:
            assert await watched.poll() == []
            delivered = []
            for number, pause in enumerate((0, 0, 500)):
                await pass_time(watched, pause)
                put(lake, watched, f"in/{overwrites} {number}")  # what is delivered moves the lookback on
                assert len(await watched.poll()) == 1
                lake.put("in/a", body=str(number).encode(), at=watched.clock.now())
                delivered.append(await watched.poll())
            assert delivered == expected
            lake.delete("in/a")
