"""A whole watcher on an S3 server behind the proxy, with one clock for both."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from email.utils import format_datetime
from typing import Any

import pytest

from airflow_state_watchers import S3PrefixWatermarkTrigger, testing
from airflow_state_watchers.sources.s3 import S3Source
from airflow_state_watchers.state.checkpoint_store import key_of
from airflow_state_watchers.testing import FrozenClock, InMemoryStore, WatcherHarness
from tests.sources.faulty_proxy import Answer, FaultyProxy

ONE_TRY = {"retries": {"total_max_attempts": 1}}
STEP = 61.0
"""Seconds between polls: more than the health record waits for its next write."""


def dated(clock: FrozenClock) -> Callable[[Answer], Answer]:
    """Let a clock be S3's, as its answers tell."""

    def dress(answer: Answer) -> Answer:
        date = ("Date", format_datetime(clock.now(), usegmt=True))
        return replace(answer, headers=(*answer.without("date").headers, date))

    return dress


@dataclass
class Watched:
    """A watcher. ``pauses`` are the seconds that it meant to wait after each poll."""

    harness: WatcherHarness
    source: S3Source
    clock: FrozenClock
    proxy: FaultyProxy
    pauses: list[float]

    async def poll(self, **crash: Any) -> list[str]:
        """Poll a minute later; return the keys that were delivered."""
        self.clock.advance(STEP)
        self.proxy.requests.clear()
        return [item["key"] for event in await self.harness.poll(**crash) for item in event["items"]]

    def stored(self, kind: str = "") -> Any:
        """The root as it is stored, or another of the watcher's records."""
        value = self.harness.store.data.get(key_of(kind, self.source.place.uri))
        return None if value is None else json.loads(value)

    @property
    def health(self) -> dict[str, Any]:
        health: dict[str, Any] = self.stored("health")
        return health


def watch_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Note for how long the watchers of harnesses mean to pause."""
    pauses: list[float] = []
    pause = testing._PollClock.pause

    async def noted(self: testing._PollClock, seconds: float) -> None:
        pauses.append(seconds)
        await pause(self, seconds)

    monkeypatch.setattr(testing._PollClock, "pause", noted)
    return pauses


@asynccontextmanager
async def watching(
    proxy: FaultyProxy, pauses: list[float], *, clock: FrozenClock, bucket_name: str, **arguments: Any
) -> AsyncIterator[Watched]:
    """Watch a prefix, from the beginning and with no retries inside a call. The clock is S3's too."""
    proxy.dress = proxy.dress or dated(clock)
    arguments = {"start": "earliest", "aws_conn_id": "lake_conn", "botocore_config": ONE_TRY, **arguments}
    trigger = S3PrefixWatermarkTrigger(bucket_name, **{"prefix": "in/", **arguments})
    trigger.source = source = trigger.build_source(30)
    harness = WatcherHarness(trigger, store=InMemoryStore(), clock=clock)
    try:
        yield Watched(harness, source, clock, proxy, pauses)
    finally:
        await source.aclose()
