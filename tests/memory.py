"""A watcher of objects in memory, for tests of what all watchers share."""

from __future__ import annotations

from typing import Any

from airflow_state_watchers.testing import FrozenClock, InMemorySource, InMemoryStore, WatcherHarness
from airflow_state_watchers.triggers.watermark import WatermarkTrigger


class MemoryTrigger(WatermarkTrigger):
    kind = "memory"

    def __init__(
        self,
        *,
        name: str = "memory",
        start: Any = "latest",
        initial_value: Any = None,
        poll_interval: Any = 60,
        on_source_change: Any = "stop",
        settle: Any = 2,
        lookback: Any = 3600,
        max_items: int = 1000,
        **kwargs: Any,
    ) -> None:
        self.name = name
        self.max_items = max_items
        super().__init__(
            watcher_name=name,
            start=start,
            initial_value=initial_value,
            poll_interval=poll_interval,
            on_source_change=on_source_change,
            settle=settle,
            lookback=lookback,
            max_items=max_items,
            **kwargs,
        )

    def build_source(self, timeout: float) -> InMemorySource:
        return InMemorySource()


class World:
    """A source, a clock for both sides, and a harness."""

    def __init__(self, *, store: InMemoryStore | None = None, **arguments: Any) -> None:
        self.clock = FrozenClock()
        self.source = InMemorySource(self.clock)
        trigger = MemoryTrigger(**arguments)
        trigger.source = self.source
        self.harness = WatcherHarness(trigger, clock=self.clock, store=store)

    def poll(self, after: float = 60, **kwargs: Any) -> list[str]:
        """Let time pass, poll, and return the keys delivered, in order."""
        self.clock.advance(after)
        return keys(self.harness.poll_sync(**kwargs))


def keys(payloads: list[dict[str, Any]]) -> list[str]:
    return [item["key"] for payload in payloads for item in payload["items"]]
