"""Objects that were uploaded in parts appear with the time at which that began, and each is delivered once all the same."""

from __future__ import annotations

import pytest

from airflow_state_watchers.core import ledger
from airflow_state_watchers.testing import FrozenClock
from tests.sources.aws_uploads import AwsUploads
from tests.sources.conftest import Lake, Watch
from tests.sources.faulty_proxy import FaultyProxy, error, on_prefix
from tests.sources.late import LAYOUTS, begun, passes, quiet


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no ledger know what is older than it has to know: only small ones do."""
    monkeypatch.setattr(ledger, "OPEN_SEGMENT", 1)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("restart", [False, True], ids=["", "restart"])
async def test_an_upload_that_is_open_for_longer_than_lookback(
    name: str, restart: bool, lake: Lake, watch: Watch, uploads: AwsUploads
) -> None:
    first, key, arguments = LAYOUTS[name]
    passing = key.replace("09-01", "11-01")
    async with begun(watch, lake, first, **arguments) as watched:
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
    async with begun(watch, lake, start="latest") as watched:
        await passes(watched, lake, "in/c", "in/d")
        uploads.complete(open_ones[0])
        uploads.complete(open_ones[1])
        uploads.abort(open_ones[2])
        assert await watched.poll() == ["in/a", "in/new"]
        await quiet(watched)


async def test_an_upload_that_is_completed_between_the_first_two_calls_of_all(
    watch: Watch, uploads: AwsUploads, proxy: FaultyProxy
) -> None:
    upload = uploads.begin("in/1")
    proxy.choose = lambda target: uploads.complete(upload) if "list-type=2" in target else None
    async with watch(start="latest", lookback=0) as watched:
        assert await watched.poll() == []
        proxy.choose = None
        assert await watched.poll() == ["in/1"]
        await quiet(watched)


@pytest.mark.parametrize("age", [0, 1, 5], ids=lambda age: f"after {age} polls")
@pytest.mark.parametrize("name", LAYOUTS)
async def test_an_upload_that_is_completed_between_the_two_calls_of_a_poll(
    name: str, age: int, lake: Lake, watch: Watch, uploads: AwsUploads, proxy: FaultyProxy
) -> None:
    first, key, arguments = LAYOUTS[name]
    passing = key.replace("09-01", "11-01")
    async with begun(watch, lake, first, **arguments) as watched:
        upload = uploads.begin(key.format("1"))
        await passes(watched, lake, *(passing.format(f"2{number}") for number in range(age)))

        def complete(target: str) -> None:
            if "list-type=2" in target and uploads.is_open(upload):
                uploads.complete(upload)

        proxy.choose = complete
        assert await watched.poll() + await watched.poll() == [key.format("1")]
        await quiet(watched)


async def test_an_upload_that_begins_between_the_two_calls_of_a_poll(
    lake: Lake, watch: Watch, uploads: AwsUploads, proxy: FaultyProxy
) -> None:
    async with begun(watch, lake) as watched:
        new: list[str] = []

        def begin(target: str) -> None:
            if "list-type=2" in target and not new:
                new.append(uploads.begin("in/1"))

        proxy.choose = begin
        await passes(watched, lake, "in/2", "in/3", "in/4")
        uploads.complete(new[0])
        assert await watched.poll() == ["in/1"]
        await quiet(watched)


async def test_an_upload_that_is_aborted_and_begun_again(lake: Lake, watch: Watch, uploads: AwsUploads) -> None:
    async with begun(watch, lake) as watched:
        upload = uploads.begin("in/1")
        await passes(watched, lake, "in/2", "in/3")
        uploads.abort(upload)
        again = uploads.begin("in/1")
        await passes(watched, lake, "in/4", "in/5", "in/6")
        uploads.complete(again)
        assert await watched.poll() == ["in/1"]
        await quiet(watched)


@pytest.mark.parametrize("done", [True, False], ids=["completed", "aborted"])
@pytest.mark.parametrize("put", ["before it began", "in the same second", "a second later", "while it was open"])
async def test_an_upload_over_a_delivered_key(
    put: str,
    done: bool,
    lake: Lake,
    watch: Watch,
    uploads: AwsUploads,
    clock: FrozenClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with begun(watch, lake) as watched:
        if put == "before it began":
            await passes(watched, lake, "in/1")
        upload = uploads.begin("in/1")
        clock.advance({"a second later": 1, "while it was open": 20}.get(put, 0))
        if put != "before it began":
            await passes(watched, lake, "in/1")
        await passes(watched, lake, "in/2", "in/3", "in/4")
        watched.harness.restart()
        if done:
            uploads.complete(upload)
            assert await watched.poll() == ["in/1"]
        else:
            uploads.abort(upload)
        await quiet(watched)


@pytest.mark.parametrize("apart", [0, 1, 100])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["first first", "last first"])
async def test_two_uploads_of_one_key(
    order: tuple[int, int], apart: float, lake: Lake, watch: Watch, uploads: AwsUploads, clock: FrozenClock
) -> None:
    async with begun(watch, lake) as watched:
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
    async with begun(watch, lake) as watched:
        one, other = uploads.begin("in/1"), uploads.begin("in/1")
        await passes(watched, lake, "in/2", "in/3")
        uploads.complete(one)
        assert await watched.poll() == ["in/1"]
        await passes(watched, lake, "in/4")
        watched.harness.restart()
        uploads.abort(other)
        await quiet(watched)


@pytest.mark.parametrize("crash", ["before_confirm", "before_commit"])
async def test_a_crash_on_the_way(crash: str, lake: Lake, watch: Watch, uploads: AwsUploads) -> None:
    async with begun(watch, lake) as watched:
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


@pytest.mark.parametrize("crash", ["before_confirm", "before_commit"])
async def test_a_crash_among_several_events(crash: str, lake: Lake, watch: Watch, uploads: AwsUploads) -> None:
    async with begun(watch, lake, max_objects_per_event=1) as watched:
        both = [uploads.begin(key) for key in ("in/1", "in/2")]
        await passes(watched, lake, "in/3", "in/4")
        for upload in both:
            uploads.complete(upload)
        for key in ("in/5", "in/6"):
            lake.put(key, at=watched.clock.now())
        await watched.poll(crash=crash)
        watched.harness.restart()
        while await watched.poll():
            pass
        batches: dict[str, list[str]] = {}
        for event in watched.harness.events:
            batches.setdefault(event["items"][0]["key"], []).append(event["batch_id"])
        assert sorted(batches) == [f"in/{number}" for number in range(7)]
        assert len(watched.harness.events) <= 8
        assert all(len(set(ids)) == 1 for ids in batches.values())
        await quiet(watched)


async def test_an_upload_whose_object_is_gone_again(lake: Lake, watch: Watch, uploads: AwsUploads) -> None:
    async with begun(watch, lake) as watched:
        deleted, replaced = uploads.begin("in/1"), uploads.begin("in/2")
        await passes(watched, lake, "in/3", "in/4")
        uploads.complete(deleted)
        uploads.complete(replaced)
        lake.delete("in/1")
        lake.put("in/2", b"new", at=watched.clock.now())
        assert await watched.poll() == ["in/2"]
        await quiet(watched)


@pytest.mark.parametrize("name", ["key", "a dead partition"])
async def test_a_look_up_that_fails_counts_for_nothing(
    name: str, lake: Lake, watch: Watch, uploads: AwsUploads, proxy: FaultyProxy
) -> None:
    first, key, arguments = LAYOUTS[name]
    async with begun(watch, lake, first, **arguments) as watched:
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
