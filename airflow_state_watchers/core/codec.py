"""Between checkpoints and the JSON that is stored, and what a stored root says about who wrote it.

A root can be read and edited by a person: its watermark, nothing else. ``seal`` is a digest over what a process wrote, so
an edited watermark is seen by any process, also by one that was not running at the time.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeAlias

from airflow_state_watchers.core.checkpoint import Checkpoint, Cursor, Intent
from airflow_state_watchers.core.ledger import Segment
from airflow_state_watchers.core.position import IDENTITY_BYTES, Position
from airflow_state_watchers.core.row_codec import dump_rows, load_cut, load_rows
from airflow_state_watchers.core.rows import RowCheckpoint
from airflow_state_watchers.core.stored import Unreadable, field_of, load_time, names_of

VERSION = 2
"""Of a root. Version 1 knew neither uploads nor a cursor."""
READABLE = (1, VERSION)
SEGMENT_VERSION = 1

AnyCheckpoint: TypeAlias = Any
"""A ``Checkpoint`` or a ``RowCheckpoint``. A watcher has one kind all its life, which its code knows and a type cannot say."""
_GONE = object()


class Writer(Enum):
    """Who a stored root comes from."""

    PROCESS = "a watcher's process"
    PERSON = "a person"


@dataclass(frozen=True, slots=True)
class Root:
    """A stored root as read: the checkpoint without its ledger, the names of its segments and who wrote it."""

    checkpoint: AnyCheckpoint
    segments: tuple[str, ...]
    uploads: tuple[str, ...]
    writer: Writer


def dump_position(position: Position | None) -> dict[str, str] | None:
    if position is None:
        return None
    return {"value": position.value.isoformat(), "tiebreak": position.tiebreak}


def load_position(stored: Any, where: str) -> Position | None:
    """Read a position; a person may write the bare time, or leave the tiebreak out: then all of that time comes again."""
    if stored is None:
        return None
    if isinstance(stored, str):
        stored = {"value": stored}
    if not isinstance(stored, Mapping) or not isinstance(stored.get("value"), str):
        raise Unreadable(f'{where} is {stored!r}; write a time such as "2026-01-31T12:00:00+00:00", or null')
    tiebreak = stored.get("tiebreak", "")
    if not isinstance(tiebreak, str):
        raise Unreadable(f"{where}.tiebreak is {tiebreak!r}; write text, or leave it out")
    return Position(load_time(stored["value"], where), tiebreak)


def dump_root(checkpoint: AnyCheckpoint) -> dict[str, Any]:
    own = dump_rows(checkpoint) if isinstance(checkpoint, RowCheckpoint) else _dump_objects(checkpoint)
    root = {
        "v": VERSION,
        "name": checkpoint.name,
        "source": dict(checkpoint.source),
        **own,
        "generation": checkpoint.generation,
        "origin": checkpoint.origin,
        "batch": checkpoint.last_batch,
        "dropped": list(checkpoint.dropped),
        "by": checkpoint.by,
        "n": checkpoint.n,
    }
    return {**root, "seal": _seal(root)}


def _dump_objects(checkpoint: Checkpoint) -> dict[str, Any]:
    cursor = checkpoint.cursor
    return {
        "watermark": dump_position(checkpoint.watermark),
        "frontier": dump_position(checkpoint.frontier),
        "intents": [
            {"batch": intent.batch_id, "upto": dump_position(intent.upto), "replaces": list(intent.replaces)}
            for intent in checkpoint.intents
        ],
        "segments": list(checkpoint.ledger),
        "uploads": [segment.name for segment in checkpoint.upload_segments],
        "floor": checkpoint.floor.isoformat() if checkpoint.floor else None,
        "cursor": {"key": cursor.key, "below": cursor.below.isoformat()} if cursor else None,
    }


def load_root(stored: Any, fallback: AnyCheckpoint) -> Root:
    """Read a root. What a person left out is taken from ``fallback``. Raises :class:`Unreadable`."""
    if not isinstance(stored, Mapping):
        raise Unreadable(f"the root is a {type(stored).__name__}, not an object")
    version = stored.get("v", VERSION)
    if type(version) is not int or version not in READABLE:
        raise Unreadable(
            f"the root has version {version!r}; this release reads up to version {VERSION}: upgrade, or delete the key to reset"
        )
    if "watermark" not in stored:
        raise Unreadable("the root has no watermark; put it back, or delete the key to reset")
    sealed = bool(stored.get("by")) and "n" in stored and stored.get("seal") == _seal(stored)
    known = _load_checkpoint(stored, fallback) if sealed else _known(stored, fallback)
    moved: AnyCheckpoint
    if isinstance(known, RowCheckpoint):
        moved = replace(known, watermark=load_cut(stored["watermark"], "watermark"))
    else:
        moved = replace(known, watermark=load_position(stored["watermark"], "watermark"))
    writer = Writer.PROCESS if sealed else Writer.PERSON
    return Root(moved, names_of(stored, "segments"), names_of(stored, "uploads"), writer)


def _load_checkpoint(stored: Mapping[str, Any], fallback: AnyCheckpoint) -> AnyCheckpoint:
    """Read what a process wrote, all but its watermark and its segments."""
    of_rows = isinstance(fallback, RowCheckpoint)
    if of_rows is not ("rows" in stored):
        raise Unreadable(
            f"the root was stored by a watcher of {'objects' if of_rows else 'rows'}, and this one watches "
            f"{'rows' if of_rows else 'objects'}; give this one another name"
        )
    batch = stored.get("batch", _GONE)
    common: dict[str, Any] = {
        "name": field_of(stored, "name", str),
        "source": field_of(stored, "source", dict),
        "origin": field_of(stored, "origin", str),
        "generation": field_of(stored, "generation", int),
        "last_batch": None if batch is None else field_of(stored, "batch", str),
        "dropped": names_of(stored, "dropped"),
        "by": field_of(stored, "by", str),
        "n": field_of(stored, "n", int),
    }
    return RowCheckpoint(**common, **load_rows(stored)) if of_rows else Checkpoint(**common, **_load_objects(stored))


def _load_objects(stored: Mapping[str, Any]) -> dict[str, Any]:
    intents, frontier = field_of(stored, "intents", list), stored.get("frontier", _GONE)
    return {
        "frontier": load_position(None if frontier is None else field_of(stored, "frontier", (str, dict)), "frontier"),
        "intents": tuple(_load_intent(intent) for intent in intents),
        "cursor": _load_cursor(stored.get("cursor")),
        "floor": None if stored.get("floor") is None else load_time(field_of(stored, "floor", str), "floor"),
    }


def _load_cursor(stored: Any) -> Cursor | None:
    if stored is None:
        return None
    return Cursor(field_of(stored, "key", str), load_time(field_of(stored, "below", str), "cursor.below"))


def _known(stored: Mapping[str, Any], fallback: AnyCheckpoint) -> AnyCheckpoint:
    """What still can be trusted of a root that a person has touched: all but the watermark and what hangs on it."""
    generation, n = stored.get("generation"), stored.get("n")
    source, name = stored.get("source"), stored.get("name")
    return replace(
        fallback,
        name=name if isinstance(name, str) else fallback.name,
        source=source if isinstance(source, Mapping) else fallback.source,
        generation=max(fallback.generation, generation if type(generation) is int else 1),
        n=max(fallback.n, n if type(n) is int else 0),
        dropped=(*fallback.dropped, *names_of(stored, "dropped")),
    )


def _load_intent(stored: Any) -> Intent:
    batch, replaces = field_of(stored, "batch", str), field_of(stored, "replaces", list)
    upto = load_position(stored.get("upto"), "intents.upto")
    if upto is None or not all(isinstance(replaced, str) for replaced in replaces):
        raise Unreadable("an intent is not complete; delete the key to reset")
    return Intent(batch, upto, tuple(replaces))


def _seal(root: Mapping[str, Any]) -> str:
    what = json.dumps([root.get(key) for key in ("watermark", "generation", "by", "n")], sort_keys=True)
    return hashlib.blake2b(what.encode(), digest_size=6).hexdigest()


def dump_segment(segment: Segment) -> dict[str, Any]:
    """Identities are one text of base64, 16 characters each."""
    ids = base64.urlsafe_b64encode(segment.identities).decode("ascii")
    return {"v": SEGMENT_VERSION, "high": segment.high.isoformat(), "ids": ids}


def load_segment(name: str, stored: Any) -> Segment:
    if not isinstance(stored, Mapping) or stored.get("v") != SEGMENT_VERSION:
        raise Unreadable(f"segment {name} is not of version {SEGMENT_VERSION}")
    try:
        raw = base64.urlsafe_b64decode(stored["ids"].encode("ascii"))
        high = load_time(stored["high"], f"segment {name}: high")
    except Unreadable:
        raise
    except (KeyError, ValueError, AttributeError, TypeError) as error:
        raise Unreadable(f"segment {name} cannot be read: {error!r}") from None
    if len(raw) % IDENTITY_BYTES:
        raise Unreadable(f"segment {name} ends in the middle of an identity")
    return Segment(name, high, raw)
