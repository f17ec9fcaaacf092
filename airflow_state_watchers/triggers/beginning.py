"""A generation that is about to begin."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_state_watchers.core.verdict import Verdict
from airflow_state_watchers.state.checkpoint_store import Found
from airflow_state_watchers.triggers.settings import Settings

log = logging.getLogger(__name__)


@dataclass
class Beginning:
    """A generation that has not been stored yet. Once looked for, its place does not move, however long storing takes."""

    base: Any
    start: Any
    verdict: Verdict
    first: Any = None
    skipped: int = 0
    skipped_more: bool = False
    advice: str | None = None
    newest: datetime | str | None = None
    refused: bool = False

    def is_still(self, found: Found) -> bool:
        """Whether the store still says what made this generation begin."""
        if found.verdict is Verdict.FIRST:
            return True  # all stored state was lost meanwhile; this process remembers what was asked for
        if found.verdict is not self.verdict:
            return False
        if found.verdict is not Verdict.MOVED:
            return True
        return (
            found.checkpoint is not None
            and self.start is not None
            and found.checkpoint.watermark == self.start.watermark
        )

    def tell(self, settings: Settings) -> None:
        """Log where the generation began, and what that skips or repeats."""
        start = self.start
        assert start is not None
        value = start.watermark.value if start.watermark else "the beginning"
        place = value.isoformat() if isinstance(value, datetime) else value
        if start.everything:
            more = "more than " if self.skipped_more else ""
            what = (
                f'{more}{self.skipped:,} existing items skipped, newest {self.newest}; start="earliest" delivers them'
            )
        else:
            what = f"everything from {place} on is delivered"
        if self.refused and self.verdict is Verdict.FIRST:
            log.error("%s: the asset was not active and its stored state, if it had any, is lost. No process remembers it, "
                      "so the watcher starts anew at %s by its start policy: %s", settings.name, place, what)  # fmt: skip
        else:
            level = logging.INFO if self.verdict is Verdict.FIRST else logging.WARNING
            log.log(level, "%s: generation %d begins at %s (%s): %s", settings.name, self.base.generation, place,
                    self.verdict.value, what)  # fmt: skip
        if self.advice:
            log.info("%s: %s", settings.name, self.advice)


def changed(name: str, stored: object, now: object) -> str:
    """Say that a watcher's source is not the one its state was stored for."""
    return (
        f"{name}: the watermark was stored for {stored}, and this watcher reads {now}. Nothing is delivered. Give the watcher "
        'another name=, or say on_source_change="keep" (go on from the watermark) or on_source_change="start" (begin again)'
    )
