from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from urllib.parse import unquote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_state_watchers.core.position import Item, Position, identity_of
from airflow_state_watchers.exceptions import SourceUnavailable
from airflow_state_watchers.sources.key_filter import KeyFilter
from airflow_state_watchers.sources.layout import Layout, Span
from airflow_state_watchers.sources.s3_listing import Listing
from airflow_state_watchers.sources.s3_place import S3Place
from airflow_state_watchers.sources.s3_scan import S3Scan, instant

PLACE = S3Place(
    bucket="lake", prefix="p/", aws_conn_id=None, region_name=None, verify=None, botocore_config=None, timeout=1
)
LAYOUT = Layout("p/")
NOON = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)
LATE = NOON + timedelta(days=1)


def page(*keys: str, token: str | None = None, modified: str = "2026-11-01T12:00:00.000Z", size: str = "1") -> Listing:
    return Listing(
        keys=[unquote_plus(key) for key in keys],
        modified=[modified] * len(keys),
        etags=['"e"'] * len(keys),
        sizes=[size] * len(keys),
        next_token=token,
    )


class Pages:
    """A listing whose pages lead to each other by token; counts how often each was fetched."""

    def __init__(self, pages: dict[str | None, Listing]) -> None:
        self.pages = pages
        self.fetched: list[str | None] = []

    async def fetch(self, span: Span, token: str | None) -> Listing:
        self.fetched.append(token)
        return self.pages[token]

    async def scan(self, key_filter: KeyFilter | None = None) -> S3Scan:
        first = await self.fetch(LAYOUT.spans(None, NOON, after=None, cuts=())[0], None)
        return S3Scan(
            place=PLACE, layout=LAYOUT, key_filter=key_filter or KeyFilter(), now=NOON, first=first, fetch=self.fetch
        )


async def items_of(scan: S3Scan, low: datetime | None = None, high: datetime = LATE) -> list[Item]:
    return [item async for items in scan.pages(low, high) for item in items]


async def keys_of(scan: S3Scan, low: datetime | None = None, high: datetime = LATE) -> list[str]:
    return [item.position.tiebreak for item in await items_of(scan, low, high)]


async def test_an_item_has_what_was_listed() -> None:
    scan = await Pages({None: page("p/a%2Bb+c.csv", size="12")}).scan()
    assert await items_of(scan) == [
        Item(
            position=Position(NOON, "p/a+b c.csv"),
            identity=identity_of("p/a+b c.csv", '"e"', "2026-11-01T12:00:00.000Z"),
            data={"key": "p/a+b c.csv", "size": 12, "etag": "e", "last_modified": "2026-11-01T12:00:00+00:00"},
        )
    ]


async def test_the_window_is_half_open() -> None:
    second = timedelta(seconds=1)
    for low, high, found in [
        (None, NOON, False),
        (None, NOON + second, True),
        (NOON, NOON + second, True),
        (NOON + second, LATE, False),
    ]:
        assert bool(await keys_of(await Pages({None: page("p/a")}).scan(), low, high)) is found


async def test_directory_markers_are_skipped_and_what_only_resembles_them_is_not() -> None:
    assert await keys_of(await Pages({None: page("p/dir/", size="0")}).scan()) == []
    assert await keys_of(await Pages({None: page("p/dir%2F", size="0")}).scan()) == []
    assert await keys_of(await Pages({None: page("p/dir/", size="1")}).scan()) == ["p/dir/"]
    assert await keys_of(await Pages({None: page("p/empty", size="0")}).scan()) == ["p/empty"]


async def test_the_filter_is_asked_about_the_key_as_it_is() -> None:
    scan = await Pages({None: page("p/a%2B.csv", "p/a.csv")}).scan(KeyFilter("*+.csv"))
    assert await keys_of(scan) == ["p/a+.csv"]


async def test_pages_are_counted_whether_wanted_or_not_and_a_page_without_objects_is_no_end() -> None:
    pages = Pages({None: page("p/a", "p/b", token="1"), "1": page(token="2"), "2": page("p/c")})
    scan = await pages.scan()
    assert await keys_of(scan, LATE) == []
    assert scan.listed == 3
    assert pages.fetched == [None, "1", "2"]


async def test_a_second_look_lists_again_from_the_first_page() -> None:
    pages = Pages({None: page("p/a", token="1"), "1": page("p/b")})
    scan = await pages.scan()
    first = await keys_of(scan)
    pages.pages[None] = page("p/new", token="1")
    assert (first, await keys_of(scan)) == (["p/a", "p/b"], ["p/new", "p/b"])
    assert scan.listed == 2


@pytest.mark.parametrize(
    "pages",
    [
        {None: page("p/a", token="1"), "1": page("p/b", token="1")},
        {None: page("p/a", token="1"), "1": page("p/b", token="2"), "2": page("p/c", token="1")},
        {None: page(token="1"), "1": page(token="1")},
        {None: page("p/a", "p/b", token="1"), "1": page("p/b", token="2"), "2": page("p/b", token="3")},
        {None: page("p/a", token="1"), "1": page("p/a")},
    ],
    ids=["same token", "circle", "empty pages", "same last key", "last page again"],
)
async def test_a_listing_that_does_not_advance_is_an_error(pages: dict[str | None, Listing]) -> None:
    with pytest.raises(SourceUnavailable, match="does not advance"):
        await keys_of(await Pages(pages).scan())


@pytest.mark.parametrize("fields", [{"modified": "yesterday"}, {"size": "much"}, {"modified": ""}])
async def test_an_object_that_cannot_be_read_is_an_error_and_never_skipped(fields: dict[str, str]) -> None:
    with pytest.raises(SourceUnavailable, match="p/odd"):
        await keys_of(await Pages({None: page("p/odd", **fields)}).scan())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2026-11-01T12:00:00.000Z", NOON),
        ("2026-11-01T12:00:00Z", NOON),
        ("2026-11-01T12:00:00.5Z", NOON + timedelta(milliseconds=500)),
        ("2026-11-01T12:00:00.123456789Z", NOON + timedelta(microseconds=123456)),
        ("2026-11-01T13:00:00.000+01:00", NOON),
        ("2026-11-01T12:00:00", NOON),
        ("Sun, 01 Nov 2026 12:00:00 GMT", NOON),
    ],
)
def test_the_time_stamps_of_s3_servers_are_read(text: str, value: datetime) -> None:
    assert instant(text) == value
    assert instant(text).utcoffset() == timedelta(0)


def test_a_time_without_a_zone_is_utc_and_not_this_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "America/New_York")
        time.tzset()
        found = instant("2026-11-01T12:00:00")
    time.tzset()
    assert found == NOON


@given(st.datetimes(timezones=st.just(timezone.utc)))
def test_a_time_stamp_is_read_to_its_last_digit(value: datetime) -> None:
    assert instant(value.isoformat().replace("+00:00", "Z")) == value
