"""Items, moments and checkpoints for tests of the core, made by hand or drawn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st

from airflow_state_watchers.core.checkpoint import Checkpoint, Cursor, Intent
from airflow_state_watchers.core.codec import Root, Writer
from airflow_state_watchers.core.identities import packed
from airflow_state_watchers.core.ledger import Ledger, Segment
from airflow_state_watchers.core.position import Item, Position, identity_of
from airflow_state_watchers.core.uploads import Upload, UploadSegment, pack, upload_id

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)

KEYS = ("a", "b", "c", "orders/+ %2B.csv", "\uffff", "\N{GRINNING FACE}")
"""The last two stand the other way round in UTF-16 and in Java's order of text."""


def at(seconds: float) -> datetime:
    """The moment so many seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def item(stamp: float, key: str = "a", etag: str = "1") -> Item:
    value = at(stamp)
    data = {"key": key, "size": 1, "etag": etag, "last_modified": value.isoformat()}
    return Item(Position(value, key), identity_of(key, etag, value.isoformat()), data)


def blank(**changes: Any) -> Checkpoint:
    """A checkpoint that knows nothing yet."""
    return Checkpoint(**{"name": "s3://lake/orders/", "source": {"bucket": "lake"}, "origin": "0f", **changes})


def restored(root: Root, segments: Iterable[Segment], uploads: Iterable[UploadSegment] = ()) -> Checkpoint:
    """Put the stored segments back under the checkpoint of a root."""
    parts = tuple(uploads)
    together = tuple(upload for part in parts for upload in part.uploads)
    checkpoint: Checkpoint = root.checkpoint
    return replace(checkpoint, ledger=Ledger.of(segments), uploads=together, upload_segments=parts)


def keys(items: tuple[Item, ...]) -> str:
    return "".join(found.position.tiebreak for found in items)


stamps = st.integers(0, 6)
"""Whole seconds, few enough that ties are the rule."""

items = st.builds(item, stamps, st.sampled_from(KEYS), st.sampled_from(("1", "2")))

texts = st.text(max_size=12)
"""Any text but lone surrogates, which Hypothesis leaves out."""

moments = st.builds(
    lambda since, zone: (NOON + timedelta(microseconds=since)).astimezone(zone),
    st.integers(-(10**15), 10**15),
    st.sampled_from([timezone.utc, timezone(timedelta(hours=-5.5))]),
)
positions = st.builds(Position, moments, texts)
batch_ids = st.text("0123456789abcdef", min_size=1, max_size=24)
intents = st.builds(Intent, batch_ids, positions, st.lists(batch_ids, max_size=12).map(tuple))
identities = st.binary(min_size=12, max_size=12)
segments = st.builds(Segment, texts, moments, st.frozensets(identities, max_size=5).map(packed))
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
"""Whatever JSON can say."""

uploads = st.builds(
    Upload,
    texts,
    st.integers(0, 10**6).map(str).map(upload_id),
    moments,
    st.integers(0, 2),
    st.lists(identities, max_size=2).map(tuple),
)


def _with_uploads(checkpoint: Checkpoint, found: list[Upload]) -> Checkpoint:
    parts = pack(found, (), name="p-u1")
    return restored(Root(checkpoint, (), (), Writer.PROCESS), checkpoint.ledger.segments, parts)


checkpoints = st.builds(
    _with_uploads,
    st.builds(
        Checkpoint,
        name=texts,
        source=st.dictionaries(texts, texts | st.none(), max_size=3),
        origin=batch_ids,
        watermark=st.none() | positions,
        frontier=st.none() | positions,
        generation=st.integers(1, 10**6),
        last_batch=st.none() | batch_ids,
        intents=st.lists(intents, max_size=3).map(tuple),
        ledger=st.lists(segments, max_size=3, unique_by=lambda segment: segment.name).map(Ledger.of),
        dropped=st.lists(texts, max_size=3).map(tuple),
        cursor=st.none() | st.builds(Cursor, texts, moments),
        floor=st.none() | moments,
        by=batch_ids,
        n=st.integers(1, 10**9),
    ),
    st.lists(uploads, max_size=4, unique_by=lambda upload: upload.id),
)
