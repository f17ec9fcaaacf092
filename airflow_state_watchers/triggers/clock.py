"""This process's clock."""

from __future__ import annotations

import asyncio
from datetime import datetime, timezone


class SystemClock:
    """The :class:`~airflow_state_watchers.ports.Clock` of production."""

    def now(self) -> datetime:
        return datetime.now(timezone.utc)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
