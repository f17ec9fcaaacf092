"""What a watcher makes of the lists of uploads in progress: long ones, refused ones, and none."""

from __future__ import annotations

import logging

import pytest

from airflow_state_watchers.sources import s3_uploads
from tests.sources.aws_uploads import UPLOAD, AwsUploads, Paged
from tests.sources.conftest import Lake, Watch
from tests.sources.faulty_proxy import Answer, Fault, FaultyProxy, error, on_uploads, reset
from tests.sources.late import begun, passes, quiet

DENIED = on_uploads(error(403, "AccessDenied"))


async def test_thousands_of_uploads_at_once(lake: Lake, watch: Watch, uploads: AwsUploads, proxy: FaultyProxy) -> None:
    async with begun(watch, lake, max_objects_per_event=5000) as watched:
        many = [uploads.begin(f"in/{number:04}") for number in range(5000)]
        await passes(watched, lake, "in/a", "in/b")
        assert watched.health["uploads"] == 5000
        assert len(proxy.requests) == 2
        for upload in many[:2]:
            uploads.complete(upload)
        for upload in many[4000:]:
            uploads.abort(upload)
        watched.harness.restart()
        assert await watched.poll() == ["in/0000", "in/0001"]
        await passes(watched, lake, "in/c", "in/d")
        assert watched.health["uploads"] == 3998
        for upload in many[2:4000]:
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
    async with begun(watch, lake) as watched:
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


@pytest.mark.parametrize("polls", [1, 2, 4])
async def test_a_list_that_leaves_an_upload_out_for_a_while(
    polls: int, lake: Lake, watch: Watch, uploads: AwsUploads, proxy: FaultyProxy
) -> None:
    """As a server of several machines may, whose clocks and caches differ."""
    async with begun(watch, lake) as watched:
        upload = uploads.begin("in/1")
        await passes(watched, lake, "in/2")
        proxy.choose = on_uploads(lambda answer: answer.with_body(UPLOAD.sub(b"", answer.body)))
        await passes(watched, lake, *(f"in/3{number}" for number in range(polls)))
        proxy.choose = None
        await passes(watched, lake, "in/4", "in/5")
        uploads.complete(upload)
        assert await watched.poll() == ["in/1"]
        await quiet(watched)


async def test_upload_ttl_is_reached(lake: Lake, watch: Watch, uploads: AwsUploads) -> None:
    async with begun(watch, lake, upload_ttl=150) as watched:
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
    async with begun(watch, lake, upload_ttl=0) as watched:
        upload = uploads.begin("in/1")
        await passes(watched, lake, "in/2")
        assert [target for target in proxy.requests if "uploads" in target] == []
        uploads.complete(upload)
        assert await watched.poll() == []
        assert watched.health["note"] is None


async def test_a_list_in_pages(lake: Lake, watch: Watch, uploads: AwsUploads, proxy: FaultyProxy) -> None:
    async with begun(watch, lake) as watched:
        many = [uploads.begin(f"in/{key}") for key in ("a+b", "c%2Bd", "e\u00e9", "f g", "h&i", "h&i")]
        proxy.choose = paged = Paged()
        await passes(watched, lake, "in/2", "in/3")
        assert paged.pages == 2 * 3
        assert watched.health["uploads"] == 6
        for upload in many[:5]:
            uploads.complete(upload)
        assert await watched.poll() == ["in/a+b", "in/c%2Bd", "in/e\u00e9", "in/f g", "in/h&i"]
        uploads.complete(many[5])
        assert await watched.poll() == ["in/h&i"]
        await quiet(watched)


FAULTS: dict[str, tuple[Fault, str]] = {
    "SlowDown": (error(503, "SlowDown"), "SourceUnavailable"),
    "reset": (reset(100), "SourceUnavailable"),
    "truncated XML": (lambda answer: answer.with_body(answer.body[:200]), "SourceUnavailable"),
    "ExpiredToken": (error(400, "ExpiredToken"), "SourceDenied"),
    "NoSuchBucket": (error(404, "NoSuchBucket"), "SourceMissing"),
    "a marker that is never known": (error(400, "InvalidArgument"), "SourceUnavailable"),
    "an upload that is never known": (error(404, "NoSuchUpload"), "SourceUnavailable"),
}


@pytest.mark.parametrize("page", [2, 3])
@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_on_a_page_of_uploads(
    name: str, page: int, lake: Lake, watch: Watch, uploads: AwsUploads, proxy: FaultyProxy
) -> None:
    fault, kind = FAULTS[name]
    async with begun(watch, lake) as watched:
        many = [uploads.begin(f"in/1{number}") for number in range(6)]
        proxy.choose = Paged()
        await passes(watched, lake, "in/2", "in/3")
        root = watched.stored()
        for upload in many:
            uploads.complete(upload)
        many = [uploads.begin(f"in/1{number}") for number in range(6)]
        proxy.choose = Paged(page, fault)
        for _ in range(2):
            assert await watched.poll() == []
            assert watched.stored() == root
            assert watched.health["last_error"]["kind"] == kind
            assert len(proxy.requests) <= 3 * page
        proxy.choose = Paged()
        assert await watched.poll() == [f"in/1{number}" for number in range(6)]
        for upload in many:
            uploads.abort(upload)
        await quiet(watched)


@pytest.mark.parametrize("times", [1, 2])
async def test_an_upload_that_ends_between_two_pages(
    times: int, lake: Lake, watch: Watch, uploads: AwsUploads, proxy: FaultyProxy
) -> None:
    async with begun(watch, lake) as watched:
        many = [uploads.begin(f"in/1{number}") for number in range(9)]
        await passes(watched, lake, "in/2", "in/3")
        ends = many[1 : 1 + times]

        def end(answer: Answer) -> Answer:
            if ends:
                uploads.complete(ends.pop(0))
            return answer

        proxy.choose = Paged(1, end)
        delivered = await watched.poll() + await watched.poll()
        assert delivered == [f"in/1{number}" for number in range(1, 1 + times)]
        assert watched.health["last_error"] is None
        for upload in many[:1] + many[1 + times :]:
            uploads.abort(upload)
        await quiet(watched)


async def test_a_list_that_is_denied_on_its_second_page(
    lake: Lake, watch: Watch, uploads: AwsUploads, proxy: FaultyProxy
) -> None:
    async with begun(watch, lake) as watched:
        many = [uploads.begin(f"in/1{number}") for number in range(6)]
        await passes(watched, lake, "in/2", "in/3")
        proxy.choose = Paged(2, error(403, "AccessDenied"))
        uploads.complete(many[0])
        await passes(watched, lake, "in/4")
        assert "is denied" in watched.health["note"]
        assert watched.health["uploads"] == 6


async def test_a_list_that_does_not_advance(lake: Lake, watch: Watch, proxy: FaultyProxy) -> None:
    markers = b"<IsTruncated>true</IsTruncated><NextKeyMarker>a</NextKeyMarker>"
    stuck = on_uploads(
        lambda answer: answer.with_body(answer.body.replace(b"<IsTruncated>false</IsTruncated>", markers))
    )
    async with begun(watch, lake) as watched:
        proxy.choose = stuck
        assert await watched.poll() == []
        assert "the list of uploads does not advance" in watched.health["last_error"]["message"]
        assert len(proxy.requests) == 2
        proxy.choose = None
        await quiet(watched)


async def test_a_server_that_knows_no_markers_is_done_without_after_some_polls(
    lake: Lake, watch: Watch, uploads: AwsUploads, proxy: FaultyProxy
) -> None:
    """Else a watcher whose prefix has more uploads in progress than a page holds would never poll again."""
    async with begun(watch, lake) as watched:
        many = [uploads.begin(f"in/1{number}") for number in range(6)]
        proxy.choose = Paged(2, error(400, "InvalidArgument"))
        lake.put("in/2", at=watched.clock.now())
        delivered = [await watched.poll() for _ in range(s3_uploads.BROKEN)]
        assert delivered == [[], [], ["in/2"]]
        assert "does not go on with a list of uploads" in watched.health["note"]
        for upload in many:
            uploads.abort(upload)
        await quiet(watched)
