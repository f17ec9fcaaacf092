"""A watcher that can not work, and says so until it can."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer

from airflow_state_watchers.exceptions import WatcherArgumentError
from airflow_state_watchers.ports import Clock, StateStore
from airflow_state_watchers.state.checkpoint_store import CheckpointStore
from airflow_state_watchers.triggers.health import Health

log = logging.getLogger(__name__)


class IdleProducer(SharedStreamProducer):
    """Delivers nothing and repeats why, in the log and in the health record of each asset it was given."""

    def __init__(self, name: str, assets: Mapping[str, StateStore], clock: Clock, *, max_backoff: float) -> None:
        self._name, self._assets, self._clock = name, assets, clock
        self._health = {asset: Health(name, asset, max_backoff) for asset in assets} or {
            "": Health(name, "", max_backoff)
        }

    async def open_stream(self) -> AsyncGenerator[tuple[Any, Any], None]:
        error = WatcherArgumentError(self._why())
        while True:
            delay = 0.0
            for asset, health in self._health.items():
                health.polling(self._clock.now())
                delay = health.failed(self._clock.now(), error)
                if asset and health.due(self._clock.now()):
                    await self._tell(asset, health)
            await self._clock.pause(delay)
        yield

    def _why(self) -> str:
        if not self._assets:
            return "this trigger watches no asset, so there is no state for its watermark. Use it in an AssetWatcher of an Asset"
        names = ", ".join(repr(asset) for asset in sorted(self._assets))
        return (
            f"assets {names} are watched with equal arguments, so Airflow gives them one trigger, and pausing or editing one "
            "DAG would lose the other's events. Nothing is delivered. Give each watcher its own name, as in "
            f'name="{self._name} for {sorted(self._assets)[0]}"'
        )

    async def _tell(self, asset: str, health: Health) -> None:
        try:
            store = CheckpointStore(self._assets[asset], self._name, by="")
            await store.write_health(health.record(None, self._clock.now()))
        except Exception as error:
            log.debug("%s: cannot write the health record: %s", self._name, error)

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Nothing is delivered, so nothing is confirmed."""
