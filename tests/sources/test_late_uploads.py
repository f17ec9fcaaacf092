"""Objects that were uploaded in parts appear with the time at which that began, and each is delivered once all the same."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from airflow_state_watchers.sources import s3_uploads
from airflow_state_watchers.testing import FrozenClock
from tests.sources.aws_uploads import AwsUploads
from tests.sources.conftest import STAMP, Define, Lake
from tests.sources.faulty_proxy import FaultyProxy, error, on_prefix, on_uploads
from tests.sources.watching import Watched, dated, watch_pauses, watching

LOOKBACK = 30
"""Less than passes between two polls."""
DENIED = on_uploads(error(403, "AccessDenied"))

Watch = Callable[..., Any]


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock(STAMP + timedelta(hours=1))


@pytest.fixture
def uploads(clock: FrozenClock, proxy: FaultyProxy, lake: Lake) -> AwsUploads:
    uploads, date = AwsUploads(clock), dated(clock)
    proxy.dress = lambda answer: date(uploads.dress(answer))
    return uploads


@pytest.fixture
def watch(
    lake: Lake,
    proxy: FaultyProxy,
    define: Define,
    clock: FrozenClock,
    uploads: AwsUploads,
    monkeypatch: pytest.MonkeyPatch,
) -> Watch:
    """Watch from the beginning, with one object delivered."""
    define("lake_conn", proxy.url)
    pauses = watch_pauses(monkeypatch)

    @asynccontextmanager
    async def watch(first: str = "in/0", **arguments: Any) -> AsyncIterator[Watched]:
        arguments = {"lookback": LOOKBACK, **arguments}
        async with watching(proxy, pauses, clock=clock, **arguments) as watched:
            lake.put(first)
            assert await watched.poll() == ([first] if arguments.get("start") != "latest" else [])
            yield watched

    return watch


async def passes(watched: Watched, lake: Lake, *keys: str) -> None:
    """Let objects pass, each in a poll of its own."""
    for key in keys:
        lake.put(key, at=watched.clock.now())
        assert await watched.poll() == [key]


async def quiet(watched: Watched) -> None:
    """See that nothing comes any more, not in another process either, and that nothing is remembered."""
    for _ in range(3):
        assert await watched.poll() == []
    assert watched.health["uploads"] == 0
    watched.harness.restart()
    assert await watched.poll() == []


LAYOUTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "modified": ("in/0", "in/{}", {}),
    "key": ("in/0", "in/{}", {"order": "key"}),
    "date_pattern": ("in/2026-11-01/0", "in/2026-11-01/{}", {"date_pattern": "%Y-%m-%d/"}),
    "a dead partition": ("in/2026-09-01/0", "in/2026-09-01/{}", {"date_pattern": "%Y-%m-%d/"}),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("restart", [False, True], ids=["", "restart"])
async def test_an_upload_that_is_open_for_longer_than_lookback(
    name: str, restart: bool, lake: Lake, watch: Watch, uploads: AwsUploads
) -> None:
    first, key, arguments = LAYOUTS[name]
    passing = key.replace("09-01", "11-01")
    async with watch(first, **arguments) as watched:
        upload = uploads.begin(key.format("1 big+\u00e9%"))
        await passes(watched, lake, *(passing.format(f"2{number}") for number in range(4)))
        if restart:
            watched.harness.restart()
        uploads.complete(upload)
        assert await watched.poll() == [key.format("1 big+\u00e9%")]
        await quiet(watched)


async def test_uploads_that_were_open_before_the_watcher_began(lake: Lake, watch: Watch, uploads: AwsUploads) -> None:
    for key in ("in/a", "in/b"):
        lake.put(key, at=uploads.clock.now())
    open_ones = [uploads.begin(key) for key in ("in/a", "in/new", "in/given up")]
    async with watch(start="latest") as watched:
        await passes(watched, lake, "in/c", "in/d")
        uploads.complete(open_ones[0])
        uploads.complete(open_ones[1])
        uploads.abort(open_ones[2])
        assert await watched.poll() == ["in/a", "in/new"]
        await quiet(watched)


@pytest.mark.parametrize("age", [0, 1, 5], ids=lambda age: f"after {age} polls")
@pytest.mark.parametrize("name", LAYOUTS)
async def test_an_upload_that_is_completed_between_the_two_calls_of_a_poll(
    name: str, age: int, lake: Lake, watch: Watch, uploads: AwsUploads, proxy: FaultyProxy
) -> None:
    first, key, arguments = LAYOUTS[name]
    passing = key.replace("09-01", "11-01")
    async with watch(first, **arguments) as watched:
        upload = uploads.begin(key.format("1"))
        await passes(watched, lake, *(passing.format(f"2{number}") for number in range(age)))

        def complete(target: str) -> None:
            if "list-type=2" in target and upload in uploads._moto.get_bucket("lake").multiparts:
                uploads.complete(upload)

        proxy.choose = complete
        assert await watched.poll() + await watched.poll() == [key.format("1")]
        await quiet(watched)


async def test_an_upload_that_begins_between_the_two_calls_of_a_poll(
    lake: Lake, watch: Watch, uploads: AwsUploads, proxy: FaultyProxy
) -> None:
    async with watch() as watched:
        begun: list[str] = []

        def begin(target: str) -> None:
            if "list-type=2" in target and not begun:
                begun.append(uploads.begin("in/1"))

        proxy.choose = begin
        await passes(watched, lake, "in/2", "in/3", "in/4")
        uploads.complete(begun[0])
        assert await watched.poll() == ["in/1"]
        await quiet(watched)


async def test_an_upload_that_is_aborted_and_begun_again(lake: Lake, watch: Watch, uploads: AwsUploads) -> None:
    async with watch() as watched:
        upload = uploads.begin("in/1")
        await passes(watched, lake, "in/2", "in/3")
        uploads.abort(upload)
        again = uploads.begin("in/1")
        await passes(watched, lake, "in/4", "in/5", "in/6")
        uploads.complete(again)
        assert await watched.poll() == ["in/1"]
        await quiet(watched)


@pytest.mark.parametrize("put", ["before it began", "in the same second", "while it was open"])
async def test_an_upload_that_overwrites_a_delivered_key(
    put: str, lake: Lake, watch: Watch, uploads: AwsUploads, clock: FrozenClock
) -> None:
    async with watch() as watched:
        if put == "before it began":
            await passes(watched, lake, "in/1")
        upload = uploads.begin("in/1")
        if put == "while it was open":
            clock.advance(20)
        if put != "before it began":
            await passes(watched, lake, "in/1")
        await passes(watched, lake, "in/2", "in/3")
        uploads.complete(upload)
        assert await watched.poll() == ["in/1"]
        await quiet(watched)


@pytest.mark.parametrize("apart", [0, 1, 100])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["first first", "last first"])
async def test_two_uploads_of_one_key(
    order: tuple[int, int], apart: float, lake: Lake, watch: Watch, uploads: AwsUploads, clock: FrozenClock
) -> None:
    async with watch() as watched:
        both = [uploads.begin("in/1")]
        clock.advance(apart)
        both.append(uploads.begin("in/1"))
        await passes(watched, lake, "in/2", "in/3")
        for which in order:
            uploads.complete(both[which])
            assert await watched.poll() == ["in/1"]
            assert await watched.poll() == []
        await quiet(watched)


async def test_two_uploads_of_one_key_of_which_one_is_given_up(lake: Lake, watch: Watch, uploads: AwsUploads) -> None:
    async with watch() as watched:
        one, other = uploads.begin("in/1"), uploads.begin("in/1")
        await passes(watched, lake, "in/2", "in/3")
        uploads.complete(one)
        assert await watched.poll() == ["in/1"]
        await passes(watched, lake, "in/4")
        uploads.abort(other)
        await quiet(watched)


async def test_thousands_of_uploads_at_once(lake: Lake, watch: Watch, uploads: AwsUploads, proxy: FaultyProxy) -> None:
    async with watch(max_objects_per_event=5000) as watched:
        begun = [uploads.begin(f"in/{number:04}") for number in range(5000)]
        await passes(watched, lake, "in/a", "in/b")
        assert watched.health["uploads"] == 5000
        assert len(proxy.requests) == 2
        for upload in begun[:2]:
            uploads.complete(upload)
        for upload in begun[4000:]:
            uploads.abort(upload)
        watched.harness.restart()
        assert await watched.poll() == ["in/0000", "in/0001"]
        await passes(watched, lake, "in/c", "in/d")
        assert watched.health["uploads"] == 3998
        for upload in begun[2:4000]:
            uploads.complete(upload)
        assert len(await watched.poll()) == 3998
        await quiet(watched)


async def test_a_list_that_is_denied_and_then_granted(
    lake: Lake,
    watch: Watch,
    uploads: AwsUploads,
    proxy: FaultyProxy,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(s3_uploads, "ASK_AGAIN", 0.0)
    async with watch() as watched:
        known = uploads.begin("in/known")
        await passes(watched, lake, "in/2")
        proxy.choose = DENIED
        unknown = uploads.begin("in/unknown")
        await passes(watched, lake, "in/3", "in/4")
        assert "s3:ListBucketMultipartUploads is denied" in watched.health["note"]
        assert watched.health["state"] == "ok"
        uploads.complete(known)  # nobody tells, so it is not looked up yet
        assert await watched.poll() == []
        proxy.choose = None
        assert await watched.poll() == ["in/known"]
        assert watched.health["note"] is None
        uploads.complete(unknown)
        assert await watched.poll() == ["in/unknown"]
        await quiet(watched)
    said = [record.getMessage() for record in caplog.records if "health" in record.name]
    assert len([text for text in said if "is denied" in text]) == 1
    assert len([text for text in said if "sees everything again" in text]) == 1


async def test_upload_ttl_is_reached(lake: Lake, watch: Watch, uploads: AwsUploads) -> None:
    async with watch(upload_ttl=150) as watched:
        old = uploads.begin("in/old")
        await passes(watched, lake, "in/2", "in/3")
        young = uploads.begin("in/young")
        await passes(watched, lake, "in/4")
        assert watched.health["uploads"] == 1
        for upload in (old, young):
            uploads.complete(upload)
        assert await watched.poll() == ["in/young"]
        await quiet(watched)


async def test_no_call_without_upload_ttl(lake: Lake, watch: Watch, uploads: AwsUploads, proxy: FaultyProxy) -> None:
    async with watch(upload_ttl=0) as watched:
        upload = uploads.begin("in/1")
        await passes(watched, lake, "in/2")
        assert [target for target in proxy.requests if "uploads" in target] == []
        uploads.complete(upload)
        assert await watched.poll() == []
        assert watched.health["note"] is None


@pytest.mark.parametrize("crash", ["before_confirm", "before_commit"])
async def test_a_crash_on_the_way(crash: str, lake: Lake, watch: Watch, uploads: AwsUploads) -> None:
    async with watch() as watched:
        upload = uploads.begin("in/1")
        await passes(watched, lake, "in/2", "in/3")
        uploads.complete(upload)
        assert await watched.poll(crash=crash) == ["in/1"]
        watched.harness.restart()
        assert await watched.poll() == ["in/1"]
        first, second = watched.harness.events[-2:]
        if crash == "before_commit":
            assert first["batch_id"] == second["batch_id"], "the inbox could not tell that it is the same"
        await quiet(watched)


@pytest.mark.parametrize("name", ["key", "a dead partition"])
async def test_a_look_up_that_fails_counts_for_nothing(
    name: str, lake: Lake, watch: Watch, uploads: AwsUploads, proxy: FaultyProxy
) -> None:
    first, key, arguments = LAYOUTS[name]
    async with watch(first, **arguments) as watched:
        upload = uploads.begin(key.format("1"))
        await passes(watched, lake, *(f"in/2026-11-01/{number}" for number in range(3)))
        uploads.complete(upload)
        for _ in range(4):
            proxy.choose = on_prefix(key.format("1"), error(503, "SlowDown"))
            assert await watched.poll() == []
            assert watched.health["state"] == "failing"
        proxy.choose = None
        assert await watched.poll() == [key.format("1")]
        await quiet(watched)
