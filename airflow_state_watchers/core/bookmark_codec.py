"""Between bookmarks and the JSON that is stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow_state_watchers.core.bookmark import Bookmark
from airflow_state_watchers.core.chain import Batch, Chain, Chains
from airflow_state_watchers.core.micros import read_text, text_of
from airflow_state_watchers.core.numbers import Numbers
from airflow_state_watchers.core.takes import Copies, Holder, Piece, Take

VERSION = 1
MAX_BYTES = 48 * 1024
"""Airflow warns above 64 KB."""


class Unreadable(ValueError):
    """A stored bookmark cannot be read. The text says why."""


def fitted(bookmark: Bookmark, holder: Holder) -> Bookmark:
    """Forget takes until the value is small enough to store: beyond the last 100 runs, then the oldest finished ones."""
    bookmark = bookmark.trimmed()
    excess = _size(dump(bookmark)) - MAX_BYTES
    gone: list[Take] = []
    for take in bookmark.closed(besides=holder) if excess > 0 else ():
        gone.append(take)
        excess -= _size(_dump_take(take))
        if excess <= 0:
            break
    return bookmark.without(gone) if gone else bookmark


def _size(value: Any) -> int:
    return len(json.dumps(value))


def dump(bookmark: Bookmark) -> dict[str, Any]:
    """Return the stored value: strict JSON."""
    return {
        "v": VERSION,
        "written": bookmark.written,
        "time": _stamp(bookmark.time),
        "seen": bookmark.seen.dump(),
        "begin": _stamp(bookmark.begin),
        "forgotten": _stamp(bookmark.forgotten),
        "keeper": None if bookmark.keeper is None else _dump_holder(bookmark.keeper),
        "takes": [_dump_take(take) for take in bookmark.takes],
        "chains": [_dump_chain(chain) for chain in bookmark.chains.chains],
    }


def load(stored: Any) -> Bookmark:
    """Read :func:`dump`'s value. Raises :class:`Unreadable`."""
    if not isinstance(stored, Mapping):
        raise Unreadable(f"it is a {type(stored).__name__}, not an object")
    if stored.get("v") != VERSION:
        raise Unreadable(f"its version is {stored.get('v')!r}; this package reads version {VERSION}")
    try:
        return Bookmark(
            time=_micros(stored["time"]),
            seen=Numbers.load(stored["seen"]),
            begin=_micros(stored["begin"]),
            takes=tuple(_load_take(take) for take in stored["takes"]),
            chains=Chains(tuple(_load_chain(chain) for chain in stored["chains"])),
            forgotten=_micros(stored["forgotten"]),
            written=int(stored["written"]),
            keeper=None if stored["keeper"] is None else _load_holder(stored["keeper"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from error


def _stamp(micros: int | None) -> str | None:
    return None if micros is None else text_of(micros)


def _micros(stored: Any) -> int | None:
    return None if stored is None else read_text(stored)


def _dump_holder(holder: Holder) -> list[Any]:
    return [holder.dag_id, holder.run_id, holder.task_id, holder.map_index]


def _load_holder(stored: Any) -> Holder:
    dag_id, run_id, task_id, map_index = stored
    return Holder(str(dag_id), str(run_id), str(task_id), int(map_index))


def _dump_take(take: Take) -> dict[str, Any]:
    dumped: dict[str, Any] = {"by": _dump_holder(take.holder), "tries": take.tries}
    if take.pieces:
        dumped["pieces"] = [_dump_piece(piece) for piece in take.pieces]
        dumped |= {"size": take.size, "numbers": take.numbers.dump(), "left": take.left.dump()}
        dumped |= {"yielded": take.yielded, "ended": take.ended}
    if take.copies:
        dumped["copies"] = [take.copies.task_id, take.copies.group, take.copies.base.dump()]
    return dumped


def _load_take(stored: Any) -> Take:
    copies = stored.get("copies")
    return Take(
        holder=_load_holder(stored["by"]),
        tries=int(stored["tries"]),
        pieces=tuple(_load_piece(piece) for piece in stored.get("pieces", ())),
        size=int(stored.get("size", 0)),
        numbers=Numbers.load(stored.get("numbers", "")),
        left=Numbers.load(stored.get("left", "")),
        yielded=int(stored.get("yielded", 0)),
        ended=bool(stored.get("ended", False)),
        copies=Copies(str(copies[0]), int(copies[1]), Numbers.load(copies[2])) if copies else None,
    )


def _dump_piece(piece: Piece) -> list[Any]:
    parts = {str(event_id): positions.dump() for event_id, positions in piece.parts.items()}
    return [piece.ids.dump(), text_of(piece.first), text_of(piece.last), *([parts] if parts else [])]


def _load_piece(stored: Any) -> Piece:
    ids, first, last, *parts = stored
    loaded = {int(event_id): Numbers.load(text) for event_id, text in (parts[0] if parts else {}).items()}
    return Piece(Numbers.load(ids), read_text(first), read_text(last), loaded)


def _dump_chain(chain: Chain) -> dict[str, Any]:
    batches = [_dump_batch(batch) for batch in chain.batches]
    return {"watcher": chain.watcher, "generation": chain.generation, "batches": batches}


def _dump_batch(batch: Batch) -> list[Any]:
    return [batch.batch_id, batch.event_id, text_of(batch.time), *([list(batch.replaces)] if batch.replaces else [])]


def _load_chain(stored: Any) -> Chain:
    batches = tuple(
        Batch(str(batch_id), int(event_id), read_text(time), tuple(map(str, replaces[0] if replaces else ())))
        for batch_id, event_id, time, *replaces in stored["batches"]
    )
    return Chain(str(stored["watcher"]), int(stored["generation"]), batches)
