"""The source against an S3 server over HTTP."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from typing import Any
from urllib.parse import parse_qs

import pytest

from airflow_state_watchers.core.position import Item
from airflow_state_watchers.exceptions import SourceDenied, SourceMissing, SourceUnavailable
from airflow_state_watchers.ports import Scan, Source
from airflow_state_watchers.sources import s3_client, s3_listing
from airflow_state_watchers.sources.s3 import KeyFilter, S3Source
from airflow_state_watchers.sources.s3_place import S3Place
from tests.sources.conftest import SECRET, STAMP, Define, Lake, MakeSource
from tests.sources.faulty_proxy import Answer, Fault, FaultyProxy, error, reset, silence

FAR = datetime(2100, 1, 1, tzinfo=timezone.utc)
EXACT_KEYS = [
    "plain",
    "a+b",
    "a b",
    "a%2Bb",
    "a%20b",
    "100%",
    "quote'\"s",
    "tab\there",
    "line\nbreak",
    "return\r\nbreak",
    "control\x01\x1f",
    "<&>",
    "\u00e9 composed",
    "e\u0301 decomposed",
    "emoji \U0001f600",
    "\uff5e before emoji in UTF-8, after it in UTF-16",
    "question?mark&amp=1#frag",
    "back\\slash",
    "//two//slashes",
    "../up/./here",
    "k" * 1021 + "\u20ac",  # 1,024 bytes: the longest that S3 takes
]


async def look(source: S3Source, low: datetime | None = None, high: datetime = FAR) -> list[Item]:
    scan = await source.open()
    return [item async for items in scan.pages(low, high) for item in items]


async def rest_of(scan: Scan) -> None:
    async for _ in scan.pages(None, FAR):
        pass


async def keys_of(source: S3Source) -> list[str]:
    return [item.position.tiebreak for item in await look(source)]


async def test_it_is_a_source_with_readable_fields(source: MakeSource) -> None:
    port: Source = source("orders/")
    assert port.fields() == {"kind": "s3", "bucket": "lake", "prefix": "orders/", "connection": "lake_conn"}


async def test_every_object_is_found_over_many_pages(lake: Lake, source: MakeSource, proxy: FaultyProxy) -> None:
    keys = {f"orders/{number:05d}" for number in range(2500)}
    for key in keys:
        lake.put(key)
    lake.put("other/1")
    scan = await source("orders/").open()
    pages = [items async for items in scan.pages(None, FAR)]
    assert max(len(items) for items in pages) <= 200, "the event loop gets its turn"
    assert sum(len(items) for items in pages) == 2500
    assert {item.position.tiebreak for items in pages for item in items} == keys
    assert scan.listed == 2500
    assert len(proxy.requests) == 3, "open() has fetched the first page already"


async def test_an_object_is_as_it_was_listed(lake: Lake, source: MakeSource) -> None:
    lake.put("orders/a.csv", b"hello")
    (item,) = await look(source("orders/"))
    assert item.position.value == STAMP
    assert item.data == {
        "key": "orders/a.csv",
        "size": 5,
        "etag": "5d41402abc4b2a76b9719d911017c592",
        "last_modified": "2026-11-01T12:00:00+00:00",
    }
    assert (await look(source("orders/")))[0].identity == item.identity


async def test_another_content_or_time_is_another_identity(lake: Lake, source: MakeSource) -> None:
    identities = set()
    for body, at in [(b"1", STAMP), (b"2", STAMP), (b"2", STAMP + timedelta(seconds=1))]:
        lake.put("a", body, at)
        identities.add((await look(source()))[0].identity)
    assert len(identities) == 3


@pytest.mark.parametrize("key", EXACT_KEYS)
async def test_keys_are_exact_and_so_are_prefixes(key: str, lake: Lake, source: MakeSource) -> None:
    assert len(key.encode()) <= 1024
    for each in EXACT_KEYS:
        lake.put(each)
    assert await keys_of(source(key)) == [each for each in EXACT_KEYS if each.startswith(key)]


async def test_all_exact_keys_are_found_at_once_and_paged(
    lake: Lake, source: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "2")
    for key in EXACT_KEYS:
        lake.put(key)
    found = await keys_of(source())
    assert sorted(found) == sorted(EXACT_KEYS)


async def test_only_the_window_and_the_filter_pass(lake: Lake, source: MakeSource) -> None:
    for second in range(4):
        lake.put(f"{second}.csv", at=STAMP + timedelta(seconds=second))
    lake.put("1.txt", at=STAMP + timedelta(seconds=1))
    lake.put("1/", b"", at=STAMP + timedelta(seconds=1))
    wanted = source(key_filter=KeyFilter("*.csv"))
    items = await look(wanted, STAMP + timedelta(seconds=1), STAMP + timedelta(seconds=3))
    assert [item.position.tiebreak for item in items] == ["1.csv", "2.csv"]


async def test_now_is_what_the_server_says(source: MakeSource, proxy: FaultyProxy) -> None:
    then = datetime(2031, 5, 6, 7, 8, 9, tzinfo=timezone.utc)

    def at_that_time(answer: Answer) -> Answer:
        bare = answer.without("date")
        return Answer(bare.status, (*bare.headers, ("Date", format_datetime(then, usegmt=True))), bare.body)

    proxy.faults = [at_that_time]
    assert (await source().open()).now == then


@pytest.mark.parametrize("date", [None, "soon"])
async def test_without_a_date_this_machines_clock_serves_and_one_warning_is_given(
    date: str | None, source: MakeSource, proxy: FaultyProxy, caplog: pytest.LogCaptureFixture
) -> None:
    def undated(answer: Answer) -> Answer:
        bare = answer.without("date")
        return bare if date is None else Answer(bare.status, (*bare.headers, ("Date", date)), bare.body)

    proxy.always = undated
    a_source = source()
    before = datetime.now(timezone.utc)
    with caplog.at_level(logging.WARNING, "airflow_state_watchers"):
        nows = [(await a_source.open()).now for _ in range(2)]
    assert before <= nows[0] <= nows[1] <= datetime.now(timezone.utc)
    assert [record.levelname for record in caplog.records if "Date" in record.getMessage()] == ["WARNING"]


# ---------------------------------------------------------------------------------------------- an incomplete listing


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
    a_source.place = replace(a_source.place, timeout=0.2)
    proxy.faults = [silence]
    with pytest.raises(SourceUnavailable, match=r"within 0\.2 s.*source_timeout"):
        await (look(a_source) if page == 0 else rest_of(scan))
    a_source.place = replace(a_source.place, timeout=30)
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
    assert 2 * by_default._client.meta.config.read_timeout <= by_default.place.timeout


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


# --------------------------------------------------------------------------------------------------- what is to mend

TO_MEND: list[tuple[Fault, type[Exception], str]] = [
    (error(403, "AccessDenied"), SourceDenied, r"s3:ListBucket .*'lake_conn' .*on arn:aws:s3:::lake\."),
    (error(403, ""), SourceDenied, "HTTP 403"),
    (error(401, "Unauthorized"), SourceDenied, "HTTP 401"),
    (error(403, "AllAccessDisabled"), SourceDenied, "AllAccessDisabled"),
    (error(403, "RequestTimeTooSkewed"), SourceDenied, "clock of this machine"),
    (error(403, "InvalidAccessKeyId"), SourceDenied, "'lake_conn' are not accepted"),
    (error(403, "SignatureDoesNotMatch"), SourceDenied, "'lake_conn' are not accepted"),
    (error(400, "ExpiredToken"), SourceDenied, "'lake_conn' have expired"),
    (error(404, "NoSuchBucket"), SourceMissing, "no bucket 'lake'"),
    (error(400, "InvalidBucketName"), SourceMissing, "no bucket 'lake'"),
    (error(400, "AuthorizationHeaderMalformed"), SourceMissing, "region_name"),
    (error(400, "InvalidArgument"), SourceUnavailable, "InvalidArgument, HTTP 400"),
    (error(500, "InternalError"), SourceUnavailable, "cannot answer now .InternalError, HTTP 500"),
    (error(503, ""), SourceUnavailable, "cannot answer now .503, HTTP 503"),
    (error(400, "RequestTimeout"), SourceUnavailable, "cannot answer now .RequestTimeout, HTTP 400"),
]


@pytest.mark.parametrize(("fault", "kind", "text"), TO_MEND)
async def test_errors_say_what_is_wrong_where_and_what_to_do_and_pass_when_it_is_mended(
    fault: Fault, kind: type[Exception], text: str, lake: Lake, source: MakeSource, proxy: FaultyProxy
) -> None:
    lake.put("orders/a")
    a_source = source("orders/")
    proxy.always = fault
    with pytest.raises(kind, match=text) as caught:
        await a_source.open()
    assert str(caught.value).startswith("s3://lake/orders/: ")
    proxy.always = None
    assert await keys_of(a_source) == ["orders/a"]


async def test_a_bucket_that_is_not_there_is_found_once_it_is(source: MakeSource, lake: Lake) -> None:
    a_source = source(bucket_name="not-yet")
    with pytest.raises(SourceMissing, match=r"no bucket 'not-yet' \(NoSuchBucket"):
        await a_source.open()
    lake._backend.create_bucket("not-yet", "us-east-1")
    assert await keys_of(a_source) == []


async def test_a_name_that_no_bucket_can_have_is_a_missing_source(source: MakeSource) -> None:
    with pytest.raises(SourceMissing, match="'la ke' cannot be the name of a bucket"):
        await source(bucket_name="la ke").open()


SECRETS = ("AKIDLAKE", SECRET, "lake-token", "X-Amz-Signature", "Bearer")


@pytest.mark.parametrize("code", ["InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "AccessDenied", "Odd"])
@pytest.mark.parametrize("status", [400, 403, 500])
async def test_no_message_repeats_a_secret(
    status: int, code: str, source: MakeSource, proxy: FaultyProxy, define: Define
) -> None:
    define("secretive", proxy.url, aws_session_token="lake-token")
    echo = " ".join(SECRETS)
    more = f"<AWSAccessKeyId>AKIDLAKE</AWSAccessKeyId><Token-0>lake-token</Token-0><StringToSign>{echo}</StringToSign>"
    proxy.always = error(status, code, echo, more)
    with pytest.raises((SourceDenied, SourceUnavailable)) as caught:
        await source(aws_conn_id="secretive").open()
    assert not [secret for secret in SECRETS if secret in str(caught.value)]
    assert caught.value.__suppress_context__, "a traceback would show the text of botocore's error"
    assert caught.value.__cause__ is None


# ------------------------------------------------------------------------------------------------------ connections


async def test_an_unknown_connection_is_missing_until_it_is_there(
    lake: Lake, source: MakeSource, proxy: FaultyProxy, define: Define
) -> None:
    lake.put("a")
    a_source = source(aws_conn_id="later")
    for _ in range(2):
        with pytest.raises(SourceMissing, match=r"no connection 'later'.*aws_conn_id"):
            await a_source.open()
    define("later", proxy.url)
    assert await keys_of(a_source) == ["a"]


async def test_a_machine_without_credentials_is_denied(source: MakeSource) -> None:
    for conn_id, name in [(None, "aws_conn_id=None"), ("aws_default", "'aws_default'")]:
        with pytest.raises(SourceDenied, match=f"no credentials in .*{name}"):
            await source(aws_conn_id=conn_id).open()


async def test_a_connection_that_makes_no_client_says_so_without_its_content(
    source: MakeSource, define: Define
) -> None:
    define("broken", f"no-scheme-{SECRET}")
    with pytest.raises(SourceDenied, match=r"no S3 client can be made of connection 'broken' \(ValueError\)") as caught:
        await source(aws_conn_id="broken").open()
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__, "a traceback would show the endpoint as it is in the connection"


async def test_a_wrong_option_of_botocore_is_named(source: MakeSource) -> None:
    with pytest.raises(SourceDenied, match=r"botocore_config .*'no_such_option'"):
        await source(botocore_config={"no_such_option": 1}).open()


async def test_an_endpoint_that_nobody_listens_at_is_unavailable_until_the_connection_is_mended(
    lake: Lake, source: MakeSource, proxy: FaultyProxy, define: Define
) -> None:
    lake.put("a")
    define("moving", "http://127.0.0.1:1")
    a_source = source(aws_conn_id="moving")
    with pytest.raises(SourceUnavailable, match=r"cannot connect .*ECONNREFUSED.*'moving'"):
        await a_source.open()
    define("moving", proxy.url)
    assert await keys_of(a_source) == ["a"]


@pytest.mark.parametrize("code", ["ExpiredToken", "ExpiredTokenException", "InvalidAccessKeyId", "InvalidToken"])
async def test_credentials_that_ran_out_are_read_again_in_the_middle_of_a_listing(
    code: str, lake: Lake, source: MakeSource, proxy: FaultyProxy, define: Define, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "2")
    for key in "abcd":
        lake.put(key)
    define("rotated", proxy.url, login="AKIDOLD")
    scan = await source(aws_conn_id="rotated").open()
    define("rotated", proxy.url, login="AKIDNEW")
    proxy.faults = [error(403, code)]
    found = [item.position.tiebreak async for items in scan.pages(None, FAR) for item in items]
    assert found == list("abcd")
    assert proxy.keys == ["AKIDOLD", "AKIDOLD", "AKIDNEW"]


async def test_credentials_just_read_are_not_read_again_at_once(source: MakeSource, proxy: FaultyProxy) -> None:
    proxy.always = error(400, "ExpiredToken")
    with pytest.raises(SourceDenied):
        await source().open()
    assert len(proxy.requests) == 1


async def test_a_client_is_made_once_and_again_after_aclose(
    source: MakeSource, monkeypatch: pytest.MonkeyPatch, lake: Lake
) -> None:
    built: list[Any] = []
    build = s3_client.build_client

    def noted(place: S3Place) -> Any:
        built.append(build(place))
        return built[-1]

    monkeypatch.setattr(s3_client, "build_client", noted)
    a_source = source()
    for _ in range(3):
        await look(a_source)
    assert len(built) == 1
    await a_source.aclose()
    await a_source.aclose()
    await look(a_source)
    assert len(built) == 2


async def test_the_connections_own_botocore_options_count_and_the_arguments_win(
    source: MakeSource, proxy: FaultyProxy, define: Define
) -> None:
    proxy.always = error(503, "SlowDown")
    once, twice = ({"retries": {"mode": "standard", "total_max_attempts": n}} for n in (1, 2))
    define("tuned", proxy.url, config_kwargs=once)
    for given, tries in [(None, 1), (twice, 2)]:
        proxy.requests.clear()
        with pytest.raises(SourceUnavailable):
            await source(aws_conn_id="tuned", botocore_config=given).open()
        assert len(proxy.requests) == tries


async def test_a_public_bucket_can_be_read_unsigned(lake: Lake, source: MakeSource, proxy: FaultyProxy) -> None:
    lake.put("a")
    assert await keys_of(source(botocore_config={"signature_version": "unsigned"})) == ["a"]
    assert proxy.keys == [""]


async def test_the_region_is_the_arguments_then_the_connections(source: MakeSource, proxy: FaultyProxy) -> None:
    for given, region in [(None, "us-east-1"), ("eu-west-3", "eu-west-3")]:
        a_source = source(region_name=given)
        await a_source.open()
        assert a_source._client.meta.region_name == region


# ---------------------------------------------------------------------------------------------------- the event loop


async def test_what_takes_long_happens_in_threads(
    lake: Lake, source: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, int] = {}

    def noting(name: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def noted(argument: Any) -> Any:
            threads[name] = threading.get_ident()
            return function(argument)

        return noted

    monkeypatch.setattr(s3_client, "build_client", noting("client", s3_client.build_client))
    monkeypatch.setattr(s3_listing, "read_listing", noting("parser", s3_listing.read_listing))
    await look(source())
    assert set(threads) == {"client", "parser"}
    assert threading.get_ident() not in threads.values()


async def test_botocore_does_not_read_the_body_again(
    lake: Lake, source: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    from botocore import handlers, parsers

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the whole body is parsed on the event loop")

    lake.put("a")
    monkeypatch.setattr(handlers.ETree, "XMLParser", refuse)
    monkeypatch.setattr(parsers.ETree, "XMLParser", refuse)
    assert await keys_of(source()) == ["a"]


@pytest.mark.parametrize("page", [0, 1])
async def test_cancellation_passes(
    page: int, lake: Lake, source: MakeSource, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "2")
    for key in "abcd":
        lake.put(key)
    a_source = source()
    await look(a_source)
    proxy.requests.clear()
    proxy.faults = [lambda answer: answer] * page + [silence]
    task = asyncio.create_task(look(a_source))
    while len(proxy.requests) <= page:
        proxy.asked.clear()
        await proxy.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await keys_of(a_source) == list("abcd"), "and the source is as good as before"


async def test_a_client_that_is_not_made_in_time_is_unavailable(
    source: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    monkeypatch.setattr(s3_client, "build_client", lambda place: release.wait())
    try:
        with pytest.raises(SourceUnavailable, match=r"connection 'lake_conn' within 0.05 s"):
            await source(timeout=0.05).open()
    finally:
        release.set()


async def test_the_query_says_what_is_meant(source: MakeSource, proxy: FaultyProxy) -> None:
    await source("a+b %2B/é").open()
    (target,) = proxy.requests
    path, _, query = target.partition("?")
    assert path == "/lake"
    assert parse_qs(query) == {"list-type": ["2"], "prefix": ["a+b %2B/é"], "encoding-type": ["url"]}
