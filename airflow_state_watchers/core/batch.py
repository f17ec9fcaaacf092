"""From new items to deliveries."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from airflow_state_watchers.core.checkpoint import Checkpoint, Intent
from airflow_state_watchers.core.position import Item, Position
from airflow_state_watchers.core.window import Selected


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


def step(checkpoint: Checkpoint, selected: Selected, *, max_items: int) -> list[Batch]:
    """Cut the new items into ordered batches of at most ``max_items``.

    Where intents are stored (an earlier process delivered and did not commit), the cuts are made where that process made
    them: equal content gets the equal batch id, other content a new id that names those it replaces. What has vanished
    since is not delivered again. An intent that was not read to its end is not closed: what is left of it names it too.
    """
    batches: list[Batch] = []
    previous = checkpoint.last_batch
    closes: tuple[str, ...] = ()
    for old, items, upto in _parts(checkpoint, selected):
        ended = (old.batch_id,) if old is not None and upto == old.upto else ()
        parts = [items[start : start + max_items] for start in range(0, len(items), max_items)]
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            batch_id = batch_id_of(checkpoint, part)
            if last:
                closes = (*closes, *ended)
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


def _replaced(old: Intent | None, batch_id: str) -> tuple[str, ...]:
    if old is None:
        return ()
    return tuple(known for known in (old.batch_id, *old.replaces) if known != batch_id)


def batch_id_of(checkpoint: Checkpoint, items: Sequence[Item]) -> str:
    """Digest what a batch is: its watcher, origin, generation and the versions in it."""
    digest = hashlib.blake2b(digest_size=12)
    digest.update(f"{checkpoint.name}\0{checkpoint.origin}\0{checkpoint.generation}\0".encode())
    for identity in sorted(item.identity for item in items):
        digest.update(identity)
    return digest.hexdigest()
