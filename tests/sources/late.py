"""What the tests of late uploads have in common."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.sources.conftest import Lake, Watch
from tests.sources.watching import Watched

LOOKBACK = 30
"""Less than passes between two polls."""


@asynccontextmanager
async def begun(watch: Watch, lake: Lake, first: str = "in/0", **arguments: Any) -> AsyncIterator[Watched]:
    """Watch from the beginning, with one object delivered."""
    async with watch(**{"lookback": LOOKBACK, **arguments}) as watched:
        lake.put(first)
        assert await watched.poll() == ([first] if arguments.get("start") != "latest" else [])
        yield watched


async def passes(watched: Watched, lake: Lake, *keys: str) -> None:
    """Let objects pass, each in a poll of its own."""
    for key in keys:
        lake.put(key, at=watched.clock.now())
        assert await watched.poll() == [key]


async def quiet(watched: Watched) -> None:
    """See that nothing comes any more, not in another process either, and that nothing is remembered."""
    for _ in range(3):
        assert await watched.poll() == []
    assert watched.health["uploads"] == 0
    watched.harness.restart()
    assert await watched.poll() == []


LAYOUTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "modified": ("in/0", "in/{}", {}),
    "key": ("in/0", "in/{}", {"order": "key"}),
    "date_pattern": ("in/2026-11-01/0", "in/2026-11-01/{}", {"date_pattern": "%Y-%m-%d/"}),
    "a dead partition": ("in/2026-09-01/0", "in/2026-09-01/{}", {"date_pattern": "%Y-%m-%d/"}),
}
