"""One look at a prefix of a bucket: pages of a listing in, items out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from datetime import datetime, timezone
from urllib.parse import unquote_plus

from airflow_state_watchers.core.position import Item, Position, identity_of
from airflow_state_watchers.exceptions import SourceUnavailable
from airflow_state_watchers.sources.key_filter import KeyFilter
from airflow_state_watchers.sources.s3_listing import Listing
from airflow_state_watchers.sources.s3_place import S3Place

BEGINNING = datetime.min.replace(tzinfo=timezone.utc)

PIECE = 200
"""How many items are made before the event loop gets its turn: about 2 ms worth of them."""

FetchPage = Callable[[str | None], Awaitable[Listing]]
"""Fetches the first page of a listing (``None``) or the one that a continuation token leads to."""


class S3Scan:
    """A :class:`~airflow_state_watchers.ports.Scan` of a prefix, of which the first page has been fetched already."""

    def __init__(self, place: S3Place, key_filter: KeyFilter, now: datetime, first: Listing, fetch: FetchPage) -> None:
        self.now = now
        self.listed = 0
        self._place = place
        self._filter = key_filter
        self._first: Listing | None = first
        self._fetch = fetch

    async def pages(self, low: datetime | None, high: datetime) -> AsyncGenerator[Sequence[Item], None]:
        """Yield for each page of the listing its wanted objects with ``low <= LastModified < high``, at most 200 at a time.

        Ends only after the last page. Raises :class:`~airflow_state_watchers.exceptions.SourceError` when a page fails or the
        listing does not advance. A second iteration lists again, from the first page.
        """
        self.listed = 0
        listing, self._first = self._first, None
        if listing is None:
            listing = await self._fetch(None)
        tokens: set[str] = set()
        last_key: str | None = None
        while True:
            if listing.keys:
                if listing.keys[-1] == last_key:
                    raise self._stuck()
                last_key = listing.keys[-1]
            self.listed += len(listing.keys)
            for items in self._items(listing, low or BEGINNING, high):
                yield items
                await asyncio.sleep(0)
            token = listing.next_token
            if token is None:
                return
            if token in tokens:
                raise self._stuck()
            tokens.add(token)
            listing = await self._fetch(token)

    def _stuck(self) -> SourceUnavailable:
        return SourceUnavailable(
            f"{self._place.uri}: the listing does not advance, S3 repeats a page. It is tried again."
        )

    def _items(self, listing: Listing, low: datetime, high: datetime) -> Iterator[list[Item]]:
        """Pick what is wanted. Most objects are outside the window, so the time is looked at first, and alone."""
        items: list[Item] = []
        for key, modified, etag, size in listing.entries():
            try:
                value = instant(modified)
                if value < low or value >= high:
                    continue
                name = unquote_plus(key) if listing.url_encoded else key
                if is_wanted(self._filter, name, int(size)):
                    items.append(item(name, value, int(size), etag, modified))
            except ValueError as error:
                raise SourceUnavailable(
                    f"{self._place.uri}: cannot read the listed object Key={key!r}, LastModified={modified!r}, Size={size!r}. "
                    "Check that the endpoint speaks S3's protocol."
                ) from error
            if len(items) == PIECE:
                yield items
                items = []
        yield items


def is_wanted(key_filter: KeyFilter, key: str, size: int) -> bool:
    """Ask the filter, except for the empty objects whose key ends in a slash: they only stand for a directory."""
    return not (size == 0 and key.endswith("/")) and key_filter.accepts(key, size)


def item(key: str, value: datetime, size: int, etag: str, modified: str) -> Item:
    """Make an item of a listed object. The identity takes ETag and LastModified as listed, the event takes them tidied."""
    return Item(
        position=Position(value, key),
        identity=identity_of(key, etag, modified),
        data={"key": key, "size": size, "etag": etag.strip('"'), "last_modified": value.isoformat()},
    )


def instant(text: str) -> datetime:
    """Read a LastModified; in UTC. Raises ``ValueError``."""
    try:
        # The form of AWS, and what fromisoformat of Python 3.10 can read: three, six or no digits after the seconds.
        value = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
    except ValueError:
        from botocore.utils import parse_timestamp  # slow, but reads whatever S3 servers have been seen to send

        value = parse_timestamp(text)
    return value.astimezone(timezone.utc) if value.tzinfo else value.replace(tzinfo=timezone.utc)
