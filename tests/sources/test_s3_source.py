"""What the source finds on an S3 server over HTTP."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from urllib.parse import parse_qs

import pytest

from airflow_state_watchers.ports import Source
from airflow_state_watchers.sources.s3 import KeyFilter
from tests.sources.conftest import FAR, STAMP, Lake, MakeSource, keys_of, look
from tests.sources.faulty_proxy import Answer, FaultyProxy

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


async def test_the_query_says_what_is_meant(source: MakeSource, proxy: FaultyProxy) -> None:
    await source("a+b %2B/é").open()
    (target,) = proxy.requests
    path, _, query = target.partition("?")
    assert path == "/lake"
    assert parse_qs(query) == {"list-type": ["2"], "prefix": ["a+b %2B/é"], "encoding-type": ["url"]}
