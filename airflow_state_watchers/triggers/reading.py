"""What the delivery path asks of a kind of source: to begin a generation, and to say what is new.

:mod:`~airflow_state_watchers.triggers.objects` and :mod:`~airflow_state_watchers.triggers.rows` are the two kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from airflow_state_watchers.triggers.beginning import Beginning


@dataclass(frozen=True, slots=True)
class Read:
    """What one look has shown.

    ``batches`` are to be delivered in order; if there are none, the source was seen up to ``upto``. ``complete``: nothing
    more is waiting. ``lag``: how far what was read is behind the source's clock. ``soon``: the next poll is worth while
    after so many seconds already.
    """

    checkpoint: Any
    batches: Sequence[Any]
    upto: Any
    complete: bool
    lag: timedelta | None = None
    soon: float | None = None


class Look(Protocol):
    """One poll's look at a source."""

    note: str | None
    """What it cannot see, and what to do about it."""

    async def begin(self, beginning: Beginning, *, label: str) -> bool:
        """Resolve where the generation begins and set its first checkpoint, whose segments are called ``label`` and a number.

        Returns whether that was possible: it may have to wait for what is on its way at the source.
        """

    async def read(self, checkpoint: Any) -> Read:
        """Return what is new since ``checkpoint``. Raises :class:`~airflow_state_watchers.exceptions.SourceError`."""


class Reading(Protocol):
    """A source, as the delivery path sees it."""

    @property
    def lookback(self) -> timedelta:
        """How far behind the watermark it is read again; known once a look has been opened."""

    def blank(self, origin: str) -> Any:
        """Return the checkpoint of a watcher that nothing is known about."""

    async def open(self) -> Look:
        """Begin one poll. Raises :class:`~airflow_state_watchers.exceptions.SourceError`."""

    async def payload(self, batch: Any, checkpoint: Any, *, trigger_run_id: str, sequence_index: int) -> dict[str, Any]:
        """Return the event of a batch, made with what it needs outside the database."""

    async def clean(self, now: datetime) -> None:
        """Remove what is too old of what :meth:`payload` has made. Called after complete polls."""

    async def aclose(self) -> None: ...
