"""The event that leaves the triggerer, and its way there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow.triggers.base import TriggerEvent

from airflow_state_watchers.core.envelope import summary_of


class WatcherTriggerEvent(TriggerEvent):
    """A trigger event that shows itself in one short line: Airflow 3.3 logs every event it fires, whole, at INFO."""

    def __init__(self, payload: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(payload, **kwargs)  # type: ignore[no-untyped-call]

    def __repr__(self) -> str:
        return f"TriggerEvent<{summary_of(self.payload)}>"

    __str__ = __repr__


@dataclass(eq=False)
class Delivery:
    """One event on its way. The filter sets ``accepted`` on the line after its ``yield``."""

    batch: Any
    event: WatcherTriggerEvent
    epoch: int
    accepted: bool = False
