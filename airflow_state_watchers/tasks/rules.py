"""What the author of a DAG asked of an inbox, and what it says when something is missing."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal

from airflow_state_watchers.tasks.refusal import InboxRefusal

log = logging.getLogger(__name__)

Start = Literal["latest", "earliest"]
OnGap = Literal["raise", "skip"]


@dataclass(frozen=True, slots=True)
class Rules:
    """``asset`` and ``consumer`` name the inbox; the rest are the arguments of ``Inbox``."""

    asset: str
    consumer: str
    start: Start = "latest"
    on_gap: OnGap = "raise"

    def gap(self, what: str, why: str = "Were they cleaned from the database?") -> None:
        """Raise because events are missing, unless the author wants to go on without them."""
        message = f"inbox {self.consumer} of asset {self.asset!r}: {what} {why}"
        if self.on_gap == "skip":
            log.warning('%s Going on without them (on_gap="skip").', message)
            return
        raise InboxRefusal(
            f'{message} Nothing new was taken. Open it once with on_gap="skip" to go on without them; to have their items '
            "delivered again, move the watcher's watermark back to the first of the two times."
        )
