"""One look at a prefix of a bucket: pages of a listing in, items out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Literal

from airflow_state_watchers.core.position import Item, Position, identity_of
from airflow_state_watchers.core.uploads import Upload
from airflow_state_watchers.exceptions import SourceUnavailable
from airflow_state_watchers.ports import Skip
from airflow_state_watchers.sources.key_filter import KeyFilter
from airflow_state_watchers.sources.layout import Layout, Span, cuts_of
from airflow_state_watchers.sources.page_walk import FetchPage, Stuck, walk
from airflow_state_watchers.sources.s3_listing import Listing
from airflow_state_watchers.sources.s3_place import S3Place

BEGINNING = datetime.min.replace(tzinfo=timezone.utc)

MANY = 100_000
"""From so many objects on it is said what a poll costs."""
PIECE = 100
"""How many young objects are looked at before the event loop gets its turn: up to a millisecond."""


@dataclass(kw_only=True)
class S3Scan:
    """A :class:`~airflow_state_watchers.ports.Scan` of a prefix.

    ``first`` is the first page of the whole prefix, if it has been fetched already. ``cuts`` say where the listing is split;
    after a complete one, where the next one may be.
    """

    place: S3Place
    layout: Layout
    key_filter: KeyFilter
    now: datetime
    fetch: FetchPage
    first: Listing | None = None
    cuts: Sequence[str] = ()
    most: int = 1
    overwrites: Literal["deliver", "ignore"] = "deliver"
    uploads: Sequence[Upload] | None = None
    note: str | None = None
    listed: int = 0
    advice: str | None = None
    cursor: str | None = None
    _is_old: bool = field(default=True, init=False)
    """Whether everything listed so far is older than what was asked for."""
    _takes_all: bool = field(init=False)

    def _advice(self) -> str | None:
        """Say what a poll costs where each lists very many objects."""
        if self.layout != Layout(self.place.prefix) or self.listed < MANY:
            return None
        return (
            f"each poll lists all {self.listed:,} objects, in {-(-self.listed // 1000):,} calls. "
            'order="key" (if keys only grow) or date_pattern (if a date follows the prefix) lists the new ones alone'
        )

    def __post_init__(self) -> None:
        self._takes_all = self.key_filter == KeyFilter() and self.layout.dated is None

    async def pages(
        self,
        low: datetime | None,
        high: datetime,
        *,
        also: Collection[str] = (),
        after: str | None = None,
        skip: Skip | None = None,
        whole: bool = False,
    ) -> AsyncGenerator[Sequence[Item], None]:
        """Yield for each page of the listing its wanted objects with ``low <= LastModified < high``, at most 100 at a time, and
        those of the keys ``also`` however old they are.

        Ends only after the last page. Raises :class:`~airflow_state_watchers.exceptions.SourceError` when a page fails or the
        listing does not advance. A second iteration lists again, from the first page.
        """
        self.listed, self.cursor, self._is_old = 0, after if self.layout.in_order else None, True
        first, self.first = self.first, None
        # Not those of a source that was before this one.
        also = {key for key in also if key.startswith(self.place.prefix)}
        spans = self.layout.spans(None if whole else low, self.now, after=after, cuts=self.cuts)
        ends: list[str] = []
        async for _, listing in self._walk(spans, first if spans == [Span(self.place.prefix)] else None):
            self.listed += len(listing.keys)
            if listing.keys and listing.next_token is not None:
                ends.append(listing.keys[-1])
            for items in self._items(listing, low or BEGINNING, high, also, skip):
                yield items
                await asyncio.sleep(0)
        self.cuts = cuts_of(ends, self.most) if not self.layout.in_order else ()
        self.advice = self._advice()
        single = [Span(key) for key in self.layout.beside(also, spans)]
        async for span, listing in self._walk(single, None):
            for items in self._items(listing.only(span.prefix), low or BEGINNING, high, also, skip):
                yield items

    async def _walk(self, spans: Sequence[Span], first: Listing | None) -> AsyncGenerator[tuple[Span, Listing], None]:
        try:
            async with aclosing(walk(spans, self.fetch, most=self.most, first=first)) as pages:
                async for page in pages:
                    yield page
        except Stuck:
            raise SourceUnavailable(
                f"{self.place.uri}: the listing does not advance, S3 repeats a page. It is tried again."
            ) from None

    def _items(
        self, listing: Listing, low: datetime, high: datetime, also: Collection[str], skip: Skip | None
    ) -> Iterator[list[Item]]:
        """Pick what is wanted. Most objects are outside the window or known, so these are told first, and cheaply."""
        items: list[Item] = []
        once = self.overwrites == "ignore"
        looked_at = 0  # of those that take time
        for key, modified, etag, size in listing.entries():
            try:
                value = instant(modified)
                if value < low and not (also and key in also):
                    if self._is_old and self.layout.in_order:
                        self.cursor = key
                    continue
                if value >= low:
                    self._is_old = False
                if value >= high:
                    continue
                identity = identity_of(key, etag, modified)
                if (skip is None or not skip(key, identity)) and self._is_wanted(key, int(size)):
                    items.append(item(key, value, int(size), etag, identity, modified, once=once))
            except ValueError as error:
                raise SourceUnavailable(
                    f"{self.place.uri}: cannot read the listed object Key={key!r}, LastModified={modified!r}, Size={size!r}. "
                    "Check that the endpoint speaks S3's protocol."
                ) from error
            looked_at += 1
            if looked_at % PIECE == 0:
                yield items
                items = []
        yield items

    def _is_wanted(self, key: str, size: int) -> bool:
        """Ask the filter, except for the empty objects whose key ends in a slash: they only stand for a directory."""
        return (size > 0 or not key.endswith("/")) and (
            self._takes_all or (self.key_filter.accepts(key, size) and self.layout.has(key))
        )


def item(
    key: str, value: datetime, size: int, etag: str, identity: bytes, modified: str, *, once: bool = False
) -> Item:
    """Make an item of a listed object. Its event has the ETag without quotes, and the time in one form.

    ``once``: one version of a key is enough.
    """
    stamp = f"{modified[:-5]}+00:00" if modified.endswith(".000Z") else value.isoformat()
    data = {"key": key, "size": size, "etag": etag.strip('"'), "last_modified": stamp}
    return Item(Position(value, key), identity, data, identity_of(key) if once else None)


def instant(text: str) -> datetime:
    """Read a LastModified; in UTC. Raises ``ValueError``."""
    try:
        # The form of AWS, and what fromisoformat of Python 3.10 can read: three, six or no digits after the seconds.
        value = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
    except ValueError:
        from botocore.utils import parse_timestamp  # slow, but reads whatever S3 servers have been seen to send

        value = parse_timestamp(text)
    return value.astimezone(timezone.utc) if value.tzinfo else value.replace(tzinfo=timezone.utc)


def date_of(header: str | None) -> datetime:
    """Read a ``Date`` header; in UTC. Raises ``ValueError``."""
    if header is None:
        raise ValueError("no Date")
    value = parsedate_to_datetime(header)
    return value.astimezone(timezone.utc) if value.tzinfo else value.replace(tzinfo=timezone.utc)
