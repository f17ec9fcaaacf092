"""An argument that changes under one name loses nothing and repeats nothing; nor does one wrong answer of a clock."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from airflow_state_watchers.core import ledger
from airflow_state_watchers.testing import FrozenClock
from tests.sources.aws_uploads import AwsUploads
from tests.sources.conftest import Lake, Watch
from tests.sources.late import begun, passes
from tests.sources.watching import Watched

HOUR = 3600


class History:
    """One store and one name, watched in different ways, one after the other."""

    def __init__(self, lake: Lake, watch: Watch, clock: FrozenClock) -> None:
        self.lake, self.watch, self.clock = lake, watch, clock
        self.store: Any = None

    def put(self, *keys: str, body: str = "x", ago: float = 0) -> None:
        for key in keys:
            self.lake.put(key, body=body.encode(), at=self.clock.now() - timedelta(seconds=ago))

    async def polls(self, number: int = 2, **arguments: Any) -> list[str]:
        async with self.watch(**{"name": "one", **arguments}) as watched:
            self._take(watched)
            return [key for _ in range(number) for key in await watched.poll()]

    def _take(self, watched: Watched) -> None:
        if self.store is not None:
            watched.harness.store = self.store
        self.store = watched.harness.store


@pytest.fixture
def history(lake: Lake, watch: Watch, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> History:
    monkeypatch.setattr(ledger, "OPEN_SEGMENT", 1)  # so that what is old is forgotten as it is among very many
    return History(lake, watch, clock)


async def test_keys_of_another_source_stand_in_another_order(history: History) -> None:
    history.put("in/v2/a", ago=2 * HOUR)
    ways: dict[str, Any] = {"order": "key", "on_source_change": "keep", "lookback": 60}
    assert await history.polls(prefix="in/v2/", **ways) == ["in/v2/a"]
    history.put("in/v2/b")
    assert await history.polls(4, prefix="in/v2/", **ways) == ["in/v2/b"]
    history.put("in/v1/c", "in/v1/d")
    assert await history.polls(prefix="in/v1/", **ways) == ["in/v1/c", "in/v1/d"]


async def test_a_longer_lookback_brings_nothing_again_and_nothing_that_was_skipped(history: History) -> None:
    history.put("in/skipped", ago=HOUR)
    assert await history.polls(start="latest", lookback=60) == []
    for key in ("in/a", "in/b", "in/c"):
        history.put(key)
        assert await history.polls(4, lookback=60) == [key]
    assert await history.polls(4, lookback=24 * HOUR) == []
    history.put("in/late", ago=30)
    assert await history.polls(lookback=24 * HOUR) == ["in/late"]


@pytest.mark.parametrize("first", ["deliver", "ignore"])
async def test_another_way_with_overwrites_brings_nothing_again(first: str, history: History) -> None:
    history.put("in/a", "in/b")
    assert await history.polls(overwrites=first) == ["in/a", "in/b"]
    other = "ignore" if first == "deliver" else "deliver"
    assert await history.polls(overwrites=other) == []
    history.put("in/a", body="new")
    assert await history.polls(overwrites=first) == (["in/a"] if first == "deliver" else [])


async def test_a_version_of_a_key_is_told_from_others_also_where_one_is_enough(lake: Lake, watch: Watch) -> None:
    """Else a batch of later versions has the id of an earlier one, and an inbox takes it for a repeat."""
    ids = set()
    for number in range(2):
        async with watch(overwrites="ignore", name=str(number)) as watched:
            lake.put("in/a", body=str(number).encode(), at=watched.clock.now())
            watched.clock.advance(60)
            (event,) = await watched.harness.poll()
            ids.add((event["items"][0]["etag"], watched.harness.events[-1]["batch_id"]))
    assert len({etag for etag, _ in ids}) == len({batch for _, batch in ids}) == 2


async def test_one_wrong_clock_makes_no_upload_too_old(
    lake: Lake, watch: Watch, uploads: AwsUploads, clock: FrozenClock
) -> None:
    async with begun(watch, lake) as watched:
        upload = uploads.begin("in/big")
        await passes(watched, lake, "in/2", "in/3")
        clock.advance(timedelta(days=30))
        await watched.poll()
        clock.advance(-timedelta(days=30))
        uploads.complete(upload)
        assert await watched.poll() + await watched.poll() == ["in/big"]


async def test_a_generation_begins_with_all_partitions(history: History) -> None:
    start = history.clock.now() - timedelta(days=1)
    history.put("in/2026-01-01/backfilled", ago=HOUR)
    history.put("in/2026-01-01/older", ago=2 * 24 * HOUR)
    assert await history.polls(date_pattern="%Y-%m-%d/", start="latest", initial_value=start) == [
        "in/2026-01-01/backfilled"
    ]
