"""How the batches of one watcher follow each other: which are new, which are repeats, which are missing.

Within one watcher and generation every event names the batch before it. A batch may be delivered again after a crash:
with the same content it keeps its id, with other content it names the batches that it replaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

BATCHES = 24
"""Batches remembered of a chain: several times what a watcher ever has in flight."""

GENERATIONS = 3
CHAINS = 40


@dataclass(frozen=True, slots=True)
class Event:
    """One asset event of a watcher, without its items.

    ``time`` counts microseconds since 1970; ``count`` is how many items the event has.
    """

    id: int
    time: int
    watcher: str
    generation: int
    batch_id: str
    previous: str | None
    count: int
    replaces: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[int, int]:
        return (self.time, self.id)

    @property
    def chain(self) -> tuple[str, int]:
        return (self.watcher, self.generation)


@dataclass(frozen=True, slots=True)
class Batch:
    """What is remembered of an event: enough to know its batch again and to read the event again."""

    batch_id: str
    event_id: int
    time: int
    replaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Chain:
    watcher: str
    generation: int
    batches: tuple[Batch, ...]

    @property
    def key(self) -> tuple[str, int]:
        return (self.watcher, self.generation)


@dataclass(frozen=True, slots=True)
class Chains:
    """The last batches of each chain, the chain used last at the end."""

    chains: tuple[Chain, ...] = ()

    def add(self, events: Iterable[Event]) -> Chains:
        """Remember the batches of these events, which come in order."""
        known = {chain.key: {batch.batch_id: batch for batch in chain.batches} for chain in self.chains}
        for event in events:
            batches = known.pop(event.chain, {})
            batches.setdefault(event.batch_id, _batch(event))
            known[event.chain] = batches
        return Chains(_trimmed(Chain(*key, tuple(batches.values())[-BATCHES:]) for key, batches in known.items()))


def _batch(event: Event) -> Batch:
    return Batch(event.batch_id, event.id, event.time, event.replaces)


def _trimmed(chains: Iterable[Chain]) -> tuple[Chain, ...]:
    kept: list[Chain] = []
    per_watcher: dict[str, int] = {}
    for chain in reversed(tuple(chains)):
        count = per_watcher[chain.watcher] = per_watcher.get(chain.watcher, 0) + 1
        if count <= GENERATIONS and len(kept) < CHAINS:
            kept.append(chain)
    return tuple(reversed(kept))


@dataclass(frozen=True, slots=True)
class Sifted:
    """``fresh`` events in order; ``repeats`` of batches already known; ``kin``: for a fresh event's id the batches whose
    items it may repeat; ``strangers``: fresh events that follow a batch nobody knows."""

    fresh: tuple[Event, ...]
    repeats: tuple[Event, ...] = ()
    kin: Mapping[int, tuple[Batch, ...]] = field(default_factory=dict)
    strangers: tuple[Event, ...] = ()


def sift(chains: Chains, unseen: Sequence[Event], around: Sequence[Event] = ()) -> Sifted:
    """Tell new events from repeats.

    ``unseen`` are the events not handled before and ``around`` other events just read, both in order. The first event of
    a chain that was never seen follows what came before this consumer; that is no hole.
    """
    known = {chain.key: _Known(chain.batches) for chain in chains.chains}
    begun = set(known)
    for event in around:
        known.setdefault(event.chain, _Known()).add(_batch(event))
    fresh: list[Event] = []
    repeats: list[Event] = []
    kin: dict[int, tuple[Batch, ...]] = {}
    for event in unseen:
        batches = known.setdefault(event.chain, _Known())
        if event.batch_id in batches:
            repeats.append(event)
            continue
        if relatives := batches.kin_of(event):
            kin[event.id] = relatives
        batches.add(_batch(event))
        fresh.append(event)
    return Sifted(tuple(fresh), tuple(repeats), kin, tuple(_strangers(fresh, known, begun)))


class _Known:
    """The batches of one chain, found by their own id or by the id of one that they replace."""

    def __init__(self, batches: Iterable[Batch] = ()) -> None:
        self._ids: set[str] = set()
        self._by_name: dict[str, list[Batch]] = {}
        for batch in batches:
            self.add(batch)

    def __contains__(self, batch_id: str) -> bool:
        return batch_id in self._ids

    def add(self, batch: Batch) -> None:
        if batch.batch_id not in self._ids:
            self._ids.add(batch.batch_id)
            for name in (batch.batch_id, *batch.replaces):
                self._by_name.setdefault(name, []).append(batch)

    def kin_of(self, event: Event) -> tuple[Batch, ...]:
        """Return the batches that may hold items of this event: one replaces the other, or both replace a third."""
        names = (event.batch_id, *event.replaces)
        return tuple(dict.fromkeys(batch for name in names for batch in self._by_name.get(name, ())))


def _strangers(
    fresh: Iterable[Event], known: Mapping[tuple[str, int], _Known], begun: set[tuple[str, int]]
) -> Iterable[Event]:
    for event in fresh:
        if event.previous is None or event.previous in known[event.chain]:
            continue
        if event.chain in begun:
            yield event
        begun.add(event.chain)
