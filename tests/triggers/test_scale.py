"""A million identities inside a lookback: what is stored, read at a restart, and written by a commit."""

from __future__ import annotations

import asyncio
from typing import Any

from airflow_state_watchers.core.identities import packed
from airflow_state_watchers.core.ledger import FULL_SEGMENT, Ledger, Segment
from airflow_state_watchers.core.position import Position, identity_of
from airflow_state_watchers.state.checkpoint_store import CheckpointStore
from airflow_state_watchers.testing import InMemoryStore
from tests.core.items import at, blank, item

SEGMENTS = 417
SOFT_LIMIT = 64 * 1024
"""Of one value in Airflow's state store, in bytes."""


class SharedStore:
    """A store as a triggerer has it: one operation at a time, and whoever waits gets a turn after each."""

    def __init__(self, store: InMemoryStore) -> None:
        self.store = store
        self.lock = asyncio.Lock()

    async def aget(self, key: str, default: Any = None) -> Any:
        async with self.lock:
            await asyncio.sleep(0)
            return self.store.get(key, default)

    async def aset(self, key: str, value: Any) -> None:
        async with self.lock:
            await asyncio.sleep(0)
            self.store.set(key, value)

    async def adelete(self, key: str) -> None:
        async with self.lock:
            await asyncio.sleep(0)
            self.store.delete(key)


def million() -> Ledger:
    ledger = Ledger()
    for number in range(SEGMENTS):
        identities = (identity_of(f"{number} {each}") for each in range(FULL_SEGMENT))
        ledger = ledger.with_segment(Segment(f"0123abcd-{number:012x}", at(number), packed(identities)))
    return ledger


async def test_a_million_identities_are_stored_read_and_added_to() -> None:
    memory = InMemoryStore()
    store = SharedStore(memory)
    checkpoint = blank(watermark=Position(at(0)), frontier=Position(at(0)), ledger=million(), by="p")
    await CheckpointStore(store, checkpoint.name, by="p").save(checkpoint)
    assert max(map(len, memory.data.values())) < SOFT_LIMIT

    others = 0

    async def other_watcher() -> None:
        nonlocal others
        while True:
            await store.aget("another watcher's")
            others += 1

    busy = asyncio.ensure_future(other_watcher())
    again = CheckpointStore(store, checkpoint.name, by="q")
    found = (await again.look(None, blank())).checkpoint
    busy.cancel()
    assert found is not None
    assert len(found.ledger) == SEGMENTS * FULL_SEGMENT
    assert others >= SEGMENTS, "the store is not held from one segment to the next"

    new = [item(500 + number, f"new {number}") for number in range(100)]
    written = len(memory.writes)
    await again.save(found.with_ledger(found.ledger.with_items(new, name="q-b1")))
    sizes = [len(memory.data[key]) for key in memory.writes[written:]]
    assert sum(sizes) < 20_000, "a commit writes what is new and the root"
    assert all(each.identity in found.ledger.with_items(new, name="q-b1") for each in new)
