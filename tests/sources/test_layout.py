"""What of a prefix is listed, and how several listings go on at once."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import datetime, timezone
from itertools import pairwise

import pytest

from airflow_state_watchers.sources.layout import Layout, Span, cuts_of
from airflow_state_watchers.sources.page_walk import Stuck, walk
from airflow_state_watchers.sources.partitions import DatePattern
from airflow_state_watchers.sources.s3_listing import Listing

NOON = datetime(2026, 11, 28, 12, tzinfo=timezone.utc)


def spans(
    layout: Layout, low: datetime | None = NOON, *, after: str | None = None, cuts: tuple[str, ...] = ()
) -> list[Span]:
    return layout.spans(low, NOON, after=after, cuts=cuts)


def test_by_default_everything_is_listed_in_one_or_in_ranges() -> None:
    assert spans(Layout("p/"), after="p/k") == [Span("p/")]
    assert spans(Layout("p/"), cuts=("p/c", "p/f")) == [
        Span("p/", None, "p/c"),
        Span("p/", "p/c", "p/f"),
        Span("p/", "p/f"),
    ]


def test_keys_in_order_are_listed_after_the_cursor() -> None:
    assert spans(Layout("p/", in_order=True), after="p/k", cuts=("p/c",)) == [Span("p/", "p/k")]


def test_dated_partitions_are_listed_alone_where_there_is_a_date_to_begin_at() -> None:
    layout = Layout("p/", dated=DatePattern("%Y-%m-%d/"))
    assert [span.prefix for span in spans(layout)] == [f"p/2026-11-{day}/" for day in (26, 27, 28, 29)]
    assert spans(layout, None) == [Span("p/")]
    assert layout.has("p/2026-11-28/a")
    assert not layout.has("p/latest/a")


def test_a_partition_that_another_one_lists_too_is_listed_once() -> None:
    layout = Layout("", dated=DatePattern("%d"))
    prefixes = [span.prefix for span in spans(layout)]
    assert prefixes == sorted(set(prefixes))


def test_a_span_has_its_keys_in_the_order_of_bytes() -> None:
    span = Span("p/", "p/b", "p/\uffff")
    assert "p/b" not in span
    assert "p/c" in span
    assert "p/\uffff" in span
    assert "p/\N{GRINNING FACE}" not in span, "S3 orders by UTF-8, where it comes later"
    assert "q/c" not in span


def test_a_listing_is_cut_into_even_ranges_where_that_is_worth_it() -> None:
    ends = [f"p/{number:04}" for number in range(100)]
    assert cuts_of(ends, 4) == ["p/0025", "p/0050", "p/0075"]
    assert cuts_of(ends[::-1], 2) == ["p/0050"], "pages of several ranges come in any order"
    assert cuts_of(ends, 1) == []
    assert cuts_of(ends[:20], 4) == []


class Bucket:
    """Pages of two keys; counts how many are asked for at once."""

    def __init__(self, keys: str) -> None:
        self.keys = list(keys)
        self.asked: list[tuple[Span, str | None]] = []
        self.at_once = self.most = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def fetch(self, span: Span, token: str | None) -> Listing:
        self.asked.append((span, token))
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await asyncio.sleep(0)
            await self.gate.wait()
        finally:
            self.at_once -= 1
        start = token if token is not None else span.after
        left = [key for key in self.keys if key.startswith(span.prefix) and (start is None or key > start)]
        text = [""] * len(left[:2])
        return Listing(left[:2], text, text, text, next_token=left[1] if len(left) > 2 else None)


async def keys_of(bucket: Bucket, spans: list[Span], *, most: int = 1, first: Listing | None = None) -> list[str]:
    return [key async for _, page in walk(spans, bucket.fetch, most=most, first=first) for key in page.keys]


async def test_one_listing_goes_from_page_to_page() -> None:
    bucket = Bucket("abcde")
    assert await keys_of(bucket, [Span("")]) == list("abcde")
    assert [token for _, token in bucket.asked] == [None, "b", "d"]


async def test_the_first_page_need_not_be_fetched_again() -> None:
    bucket = Bucket("abcde")
    first = await bucket.fetch(Span(""), None)
    assert await keys_of(bucket, [Span("")], first=first) == list("abcde")
    assert [token for _, token in bucket.asked] == [None, "b", "d"]


@pytest.mark.parametrize("most", [1, 2, 3, 9])
async def test_ranges_together_show_every_key_once(most: int) -> None:
    bucket = Bucket("abcdefghijkl")
    cuts = [None, "b", "e", "k", None]
    ranges = [Span("", after, upto) for after, upto in pairwise(cuts)]
    assert sorted(await keys_of(bucket, ranges, most=most)) == list("abcdefghijkl")
    assert bucket.most <= most


async def test_pages_of_one_range_come_in_order() -> None:
    bucket = Bucket("abcdefghijkl")
    found = await keys_of(bucket, [Span("", None, "f"), Span("", "f")], most=2)
    assert [key for key in found if key <= "f"] == list("abcdef")
    assert [key for key in found if key > "f"] == list("ghijkl")


async def test_leaving_in_the_middle_leaves_no_call_behind() -> None:
    bucket = Bucket("abcdefghijkl")
    async with aclosing(walk([Span("", None, "f"), Span("", "f")], bucket.fetch, most=2)) as pages:
        await anext(pages)
        bucket.gate.clear()
    assert bucket.at_once == 0
    assert len(asyncio.all_tasks()) == 1


async def test_a_page_that_fails_ends_all_of_them() -> None:
    bucket = Bucket("abcdefghijkl")

    async def fetch(span: Span, token: str | None) -> Listing:
        if span.after == "f":
            raise ConnectionError
        return await bucket.fetch(span, token)

    with pytest.raises(ConnectionError):
        async for _ in walk([Span("", None, "f"), Span("", "f")], fetch, most=2):
            pass
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("token", ["again", None])
async def test_a_listing_that_does_not_advance_is_stuck(token: str | None) -> None:
    calls = 0

    async def fetch(span: Span, given: str | None) -> Listing:
        nonlocal calls
        calls += 1
        key = "a" if token is None else f"a{calls}"
        return Listing([key], [""], [""], [""], next_token=token or f"t{calls}")

    async def all_pages() -> None:
        async for _ in walk([Span("")], fetch, most=1):
            assert calls < 5

    with pytest.raises(Stuck):
        await all_pages()
