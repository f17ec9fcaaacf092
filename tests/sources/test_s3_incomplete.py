"""A listing that breaks off, in every way that the proxy knows, is an error and never a shorter listing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_state_watchers.exceptions import SourceUnavailable
from airflow_state_watchers.sources import s3_client
from tests.sources.conftest import FAR, Lake, MakeSource, client_of, keys_of, look, rest_of
from tests.sources.faulty_proxy import Answer, Fault, FaultyProxy, error, reset, silence


def broken_off(answer: Answer) -> Answer:
    return answer.with_body(answer.body[: len(answer.body) // 2])


def replaced(old: bytes, new: bytes) -> Fault:
    def fault(answer: Answer) -> Answer:
        assert old in answer.body
        return answer.with_body(answer.body.replace(old, new))

    return fault


INCOMPLETE: dict[str, Fault] = {
    "reset before the body": reset(0),
    "reset within the body": reset(200),
    "body that breaks off": broken_off,
    "empty body": lambda answer: answer.with_body(b""),
    "not a listing": lambda answer: answer.with_body(b"<html><body>Please log in</body></html>"),
    "error inside a 200": error(200, "InternalError"),
    "truncated without a token": replaced(b"NextContinuationToken", b"SomethingElse"),
    "neither truncated nor not": replaced(b"IsTruncated", b"SomethingElse"),
    "an object without a time": replaced(b"LastModified", b"SomethingElse"),
    "500": error(500, "InternalError"),
    "503": error(503, "SlowDown"),
    "429": error(429, "TooManyRequests"),
}


@pytest.mark.parametrize("fault", INCOMPLETE.values(), ids=INCOMPLETE.keys())
@pytest.mark.parametrize("page", [0, 1])
async def test_an_incomplete_listing_never_ends_normally_and_the_next_one_is_whole(
    page: int, fault: Fault, lake: Lake, source: MakeSource, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "2")
    for key in "abcdef":
        lake.put(key)
    a_source = source()
    proxy.faults = [lambda answer: answer] * page + [fault]
    with pytest.raises(SourceUnavailable, match=r"^s3://lake/"):
        await look(a_source)
    assert not proxy.faults
    assert await keys_of(a_source) == list("abcdef")


@pytest.mark.parametrize("page", [0, 1])
async def test_a_page_that_does_not_come_in_time_is_an_error(
    page: int, lake: Lake, source: MakeSource, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "2")
    for key in "abcd":
        lake.put(key)
    a_source = source(botocore_config={"read_timeout": 600, "retries": {"total_max_attempts": 1}})
    scan = await a_source.open()
    a_source.calls.place = replace(a_source.calls.place, timeout=0.2)
    proxy.faults = [silence]
    with pytest.raises(SourceUnavailable, match=r"within 0\.2 s.*source_timeout"):
        await (look(a_source) if page == 0 else rest_of(scan))
    a_source.calls.place = replace(a_source.calls.place, timeout=30)
    assert await keys_of(a_source) == list("abcd")


async def test_an_attempt_that_hangs_leaves_room_for_another(
    lake: Lake, source: MakeSource, proxy: FaultyProxy
) -> None:
    lake.put("a")
    proxy.faults = [silence]
    assert await keys_of(source(botocore_config={"read_timeout": 0.5})) == ["a"]
    assert len(proxy.requests) > 1
    by_default = source(botocore_config=None)
    await by_default.open()
    assert 2 * client_of(by_default).meta.config.read_timeout <= by_default.place.timeout


async def test_a_token_that_does_not_advance_is_an_error(
    lake: Lake, source: MakeSource, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "2")
    for key in "abcdef":
        lake.put(key)
    scan = await source().open()
    remembered: list[Answer] = []

    def same_page_again(answer: Answer) -> Answer:
        remembered.append(answer)
        return remembered[0]

    proxy.always = same_page_again
    with pytest.raises(SourceUnavailable, match="does not advance"):
        [items async for items in scan.pages(None, FAR)]
    assert len(proxy.requests) <= 3


async def test_what_passes_is_tried_again_within_one_call(lake: Lake, source: MakeSource, proxy: FaultyProxy) -> None:
    lake.put("a")
    proxy.faults = [error(503, "SlowDown"), reset(100)]
    assert await keys_of(source(botocore_config=None)) == ["a"]
    assert len(proxy.requests) == 3


async def test_tries_are_limited(source: MakeSource, proxy: FaultyProxy) -> None:
    proxy.always = error(503, "SlowDown")
    with pytest.raises(SourceUnavailable, match="SlowDown, HTTP 503"):
        await source(botocore_config=None).open()
    assert len(proxy.requests) == s3_client.MAX_ATTEMPTS
