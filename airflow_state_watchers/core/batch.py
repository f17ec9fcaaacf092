"""From new items to deliveries."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge

from airflow_state_watchers.core.checkpoint import Checkpoint, Intent
from airflow_state_watchers.core.position import Item, Position
from airflow_state_watchers.core.window import Selected

_ENCODER = json.JSONEncoder(skipkeys=True, default=repr)
_BETWEEN = len(", ")
_PIECE = 5_000


@dataclass(frozen=True, slots=True)
class Batch:
    """The items of one event, in order, never empty.

    ``previous`` is the batch before it in this generation; ``closes`` are the stored intents whose last items it takes over.
    """

    intent: Intent
    items: tuple[Item, ...]
    previous: str | None
    closes: tuple[str, ...] = ()

    @property
    def batch_id(self) -> str:
        return self.intent.batch_id

    @property
    def count(self) -> int:
        return len(self.items)


def step(checkpoint: Checkpoint, selected: Selected, *, max_items: int, max_bytes: int | None = None) -> list[Batch]:
    """Cut the new items into ordered batches of at most ``max_items`` and ``max_bytes``; one item alone may be larger.

    Where intents are stored (an earlier process delivered and did not commit), the cuts are made where that process made
    them: equal content gets the equal batch id, other content a new id that names those it replaces. What has vanished
    since is not delivered again. An intent that was not read to its end is not closed: what is left of it names it too.
    """
    batches: list[Batch] = []
    previous = checkpoint.last_batch
    closes: tuple[str, ...] = ()
    begun: set[str] = set()
    for old, items, upto in _parts(checkpoint, selected):
        ended = (old.batch_id,) if old is not None and upto == old.upto else ()
        parts = list(_cut(items, max_items, max_bytes))
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            batch_id = batch_id_of(checkpoint, part)
            begun.add(batch_id)
            if last:  # an intent whose first items are a batch of its own again is taken over by that one
                closes = (*closes, *(each for each in ended if each not in begun or each == batch_id))
            intent = Intent(batch_id, upto if last else part[-1].position, _replaced(old, batch_id))
            batches.append(Batch(intent, part, previous, closes))
            previous, closes = batch_id, ()
        if not parts:
            closes = (*closes, *ended)
    return batches


def _parts(checkpoint: Checkpoint, selected: Selected) -> Iterator[tuple[Intent | None, tuple[Item, ...], Position]]:
    """Cut the items at the stored intents; without any there is one part."""
    rest: Sequence[Item] = selected.items
    for intent in checkpoint.intents:
        upto = min(intent.upto, selected.upto)
        count = sum(1 for item in rest if item.position <= upto)
        yield intent, tuple(rest[:count]), upto
        rest = rest[count:]
    if not checkpoint.intents:
        yield None, tuple(rest), selected.upto


def size_of(item: Item) -> int:
    """Return how many bytes an item takes in a list in Airflow's database: JSON in ASCII. Any value has a size."""
    return len(_ENCODER.encode(dict(item.data))) + _BETWEEN


def _cut(items: tuple[Item, ...], max_items: int, max_bytes: int | None) -> Iterator[tuple[Item, ...]]:
    start = size = 0
    for number, item in enumerate(items):
        more = 0 if max_bytes is None else size_of(item)
        is_full = number - start == max_items or (max_bytes is not None and size + more > max_bytes)
        if is_full and number > start:
            yield items[start:number]
            start, size = number, 0
        size += more
    if items:
        yield items[start:]


def _replaced(old: Intent | None, batch_id: str) -> tuple[str, ...]:
    if old is None:
        return ()
    return tuple(known for known in (old.batch_id, *old.replaces) if known != batch_id)


def batch_id_of(checkpoint: Checkpoint, items: Sequence[Item]) -> str:
    """Digest what a batch is: its watcher, origin, generation and the versions in it."""
    digest = hashlib.blake2b(digest_size=12)
    digest.update(f"{checkpoint.name}\0{checkpoint.origin}\0{checkpoint.generation}\0".encode())
    identities = [item.identity for item in items]
    # In pieces: sorting tens of thousands at once would hold the interpreter, and so the event loop, for long.
    pieces = (sorted(identities[start : start + _PIECE]) for start in range(0, len(identities), _PIECE))
    for identity in merge(*pieces):
        digest.update(identity)
    return digest.hexdigest()
