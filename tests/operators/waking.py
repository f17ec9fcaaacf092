"""A trigger that wakes its task every few seconds, and cancels the job when a person stops the task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from tests.operators.job_service import JobClient


class WakingTrigger(BaseTrigger):
    def __init__(self, *, address: str, job_id: str, seconds: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.address, self.job_id, self.seconds = address, job_id, seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "tests.operators.waking.WakingTrigger", {
            "address": self.address,
            "job_id": self.job_id,
            "seconds": self.seconds,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        await asyncio.to_thread(JobClient(self.address).status, self.job_id)
        await asyncio.sleep(self.seconds)
        yield TriggerEvent({"status": "whatever"})  # type: ignore[no-untyped-call]

    async def on_kill(self) -> None:
        await asyncio.to_thread(JobClient(self.address).cancel, self.job_id)
