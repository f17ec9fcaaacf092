"""Several listings at once, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from airflow_state_watchers.sources.layout import Span
from airflow_state_watchers.sources.s3_listing import Listing

FetchPage = Callable[[Span, str | None], Awaitable[Listing]]
"""Fetches the first page of a span's listing (``None``) or the one that a continuation token leads to."""


class Stuck(Exception):
    """A listing does not advance."""


@dataclass
class _Walk:
    """One span's way through its pages."""

    span: Span
    tokens: set[str] = field(default_factory=set)
    last_key: str | None = None

    def next_token(self, listing: Listing) -> str | None:
        """Return where the listing goes on. Raises :class:`Stuck` for a page or a token that was there before."""
        if listing.keys:
            if listing.keys[-1] == self.last_key:
                raise Stuck
            self.last_key = listing.keys[-1]
        token = listing.next_token
        if token is None:
            return None
        if token in self.tokens:
            raise Stuck
        self.tokens.add(token)
        return token


async def walk(
    spans: Iterable[Span], fetch: FetchPage, *, most: int, first: Listing | None = None
) -> AsyncGenerator[tuple[Span, Listing], None]:
    """Yield each page of each span with its span; the pages of one span in order, ``most`` of them on their way at once.

    ``first`` is the first page of the first span, if it has been fetched already. While a page is looked at, the next one of
    its span is fetched.
    """
    waiting = iter(spans)
    running: dict[asyncio.Future[Listing], _Walk] = {}

    def begin(walk: _Walk, token: str | None) -> None:
        running[asyncio.ensure_future(fetch(walk.span, token))] = walk

    try:
        while True:
            while len(running) < most and (span := next(waiting, None)) is not None:
                if first is None:
                    begin(_Walk(span), None)
                else:
                    given: asyncio.Future[Listing] = asyncio.get_running_loop().create_future()
                    given.set_result(first)
                    running[given], first = _Walk(span), None
            if not running:
                return
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for page in done:
                walk, listing = running.pop(page), page.result()
                if walk.span.upto is not None:
                    listing = listing.up_to(walk.span.upto)
                token = walk.next_token(listing)
                if token is not None:
                    begin(walk, token)
                yield walk.span, listing
    finally:
        for page in running:
            page.cancel()
        await asyncio.gather(*running, return_exceptions=True)
