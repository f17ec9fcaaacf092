"""How a watcher is doing: the record in the asset's state, the metrics, and how long to wait after a failure.

The record is written on change and at most once a minute; the metrics go through Airflow's own stats.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from airflow_state_watchers.core.codec import AnyCheckpoint
from airflow_state_watchers.core.envelope import NotJson
from airflow_state_watchers.exceptions import (
    CheckpointError,
    SourceDenied,
    SourceMissing,
    StateWatcherError,
    WatcherArgumentError,
)

log = logging.getLogger(__name__)

WRITE_INTERVAL = timedelta(minutes=1)
FIRST_BACKOFF = 2.0
_PERMANENT = (SourceDenied, SourceMissing, CheckpointError, WatcherArgumentError)


@dataclass
class Health:
    """One watcher's health. Times are of this process's clock; ``lag`` is measured by the source's."""

    watcher: str
    asset: str
    max_backoff: float
    last_poll: datetime | None = None
    last_success: datetime | None = None
    consecutive_failures: int = 0
    last_error: dict[str, str] | None = None
    lag_seconds: float | None = None
    items: int = 0
    events: int = 0
    note: str | None = None
    _written: datetime | None = None
    _measured: datetime | None = None

    def polling(self, now: datetime) -> None:
        """A poll begins."""
        if self.last_success is not None:
            self._gauge("seconds_since_poll", (now - self.last_success).total_seconds())
        self.last_poll = now

    def succeeded(self, now: datetime) -> None:
        if self.consecutive_failures:
            log.info("%s: works again after %d failures", self.watcher, self.consecutive_failures)
        self.last_success, self.consecutive_failures, self.last_error = now, 0, None
        self._gauge("consecutive_failures", 0)

    def scanned(self, now: datetime, *, lag: timedelta | None) -> None:
        """A look at the source was complete; ``lag`` is how far what it has read is behind the source's clock."""
        if lag is not None:
            self.lag_seconds = max(0.0, lag.total_seconds())
            self._measured = now
            self._gauge("lag_seconds", self.lag_seconds)

    def noted(self, note: str | None) -> None:
        """Say once what the looks at the source cannot see, and once that they can again."""
        if note != self.note:
            log.log(logging.WARNING if note else logging.INFO, "%s: %s", self.watcher, note or "sees everything again")
            self.note = note

    def committed(self, items: int) -> None:
        """An event is in Airflow's database and its checkpoint is stored."""
        self.items += items
        self.events += 1
        self._incr("items", items)
        self._incr("events", 1)

    def failed(self, now: datetime, error: Exception) -> float:
        """Note and log a failure; return the seconds to wait: exponential, jittered, capped."""
        self.consecutive_failures += 1
        self._gauge("consecutive_failures", self.consecutive_failures)
        if self.lag_seconds is not None:
            self._gauge("lag_seconds", self._lag(now) or 0.0)
        known = isinstance(error, (StateWatcherError, NotJson))
        # A foreign error's text may hold anything, so it goes to the log alone, where Airflow masks secrets.
        message = str(error) if known else "unexpected; see the triggerer's log"
        self.last_error = {"kind": type(error).__name__, "message": message, "at": now.isoformat()}
        delay = min(self.max_backoff, FIRST_BACKOFF * 2.0 ** min(self.consecutive_failures - 1, 30))
        delay *= random.uniform(0.75, 1.0)  # noqa: S311
        level = logging.ERROR if isinstance(error, _PERMANENT) or not known else logging.WARNING
        text = message.removeprefix(f"{self.watcher}: ") if known else type(error).__name__
        log.log(level, "%s: %s (failure %d, next try in %.0f s)", self.watcher, text, self.consecutive_failures, delay,
                exc_info=None if known else error)  # fmt: skip
        return delay

    def due(self, now: datetime) -> bool:
        """Whether the record may be written now."""
        if self._written is not None and timedelta(0) <= now - self._written < WRITE_INTERVAL:
            return False
        self._written = now
        return True

    def record(self, checkpoint: AnyCheckpoint | None, now: datetime) -> dict[str, Any]:
        """Return what is stored; readable by a person."""
        state = "failing" if self.consecutive_failures else "ok"
        return {
            "v": 1,
            "watcher": self.watcher,
            "state": state,
            "last_poll": _text(self.last_poll),
            "last_success": _text(self.last_success),
            "consecutive_failures": self.consecutive_failures,
            "last_error": self.last_error,
            "lag_seconds": self._lag(now),
            "watermark": _text(checkpoint.watermark.value) if checkpoint and checkpoint.watermark else None,
            "note": self.note,
            "uploads": len(checkpoint.uploads) if checkpoint else 0,
            "items": self.items,
            "events": self.events,
        }

    def _lag(self, now: datetime) -> float | None:
        """Return the lag as last measured, grown by the time since: a watcher that fails falls behind."""
        if self.lag_seconds is None or self._measured is None:
            return None
        return round(self.lag_seconds + max(0.0, (now - self._measured).total_seconds()), 3)

    def _gauge(self, name: str, value: float) -> None:
        _stats().gauge(f"state_watchers.{name}", value, tags=self._tags())

    def _incr(self, name: str, count: int) -> None:
        _stats().incr(f"state_watchers.{name}", count, tags=self._tags())

    def _tags(self) -> dict[str, str]:
        return {"watcher": self.watcher, "asset": self.asset}


def _stats() -> Any:
    from airflow.sdk.observability import stats

    return stats


def _text(value: datetime | str | None) -> str | None:
    return value.isoformat() if isinstance(value, datetime) else value
