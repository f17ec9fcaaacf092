"""The stored JSON: it comes back as it was, a person may edit the watermark, and nothing unreadable is believed."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_state_watchers.core.checkpoint import Checkpoint, Cursor, Intent
from airflow_state_watchers.core.codec import (
    Root,
    Writer,
    dump_position,
    dump_root,
    dump_segment,
    load_position,
    load_root,
    load_segment,
)
from airflow_state_watchers.core.identities import packed
from airflow_state_watchers.core.ledger import FULL_SEGMENT, Ledger, Segment
from airflow_state_watchers.core.position import Position
from airflow_state_watchers.core.stored import Unreadable, load_time
from airflow_state_watchers.core.upload_codec import dump_uploads, load_uploads
from airflow_state_watchers.core.uploads import Upload, UploadSegment
from tests.core.items import NOON, at, batch_ids, blank, checkpoints, item, plain, positions, restored, segments, texts

EXAMPLE = blank(
    watermark=Position(at(1), "orders/a.csv"),
    frontier=Position(at(5)),
    generation=2,
    last_batch="b0",
    intents=(Intent("b1", Position(at(7)), ("b9",)),),
    ledger=Ledger().with_items([item(1)], name="s1"),
    upload_segments=(UploadSegment("p1-u7.0", (Upload("b", "0a1b2c", at(0)),)),),
    cursor=Cursor("orders/a", at(-1)),
    floor=at(-3600),
    dropped=("s0",),
    by="p1",
    n=7,
)


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def stored(checkpoint: Checkpoint = EXAMPLE, **edits: Any) -> dict[str, Any]:
    root: dict[str, Any] = through_json(dump_root(checkpoint))
    return {**root, **edits}


def load(root: Any) -> Root:
    return load_root(root, blank(origin="fallback"))


def without(root: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in root.items() if key not in keys}


# Round trips.


def test_the_stored_shape() -> None:
    root = stored()
    assert len(root.pop("seal")) == 12
    assert root == {
        "v": 2,
        "name": "s3://lake/orders/",
        "source": {"bucket": "lake"},
        "watermark": {"value": "2026-01-31T12:00:01+00:00", "tiebreak": "orders/a.csv"},
        "frontier": {"value": "2026-01-31T12:00:05+00:00", "tiebreak": ""},
        "generation": 2,
        "origin": "0f",
        "batch": "b0",
        "intents": [
            {"batch": "b1", "upto": {"value": "2026-01-31T12:00:07+00:00", "tiebreak": ""}, "replaces": ["b9"]}
        ],
        "segments": ["s1"],
        "uploads": ["p1-u7.0"],
        "floor": "2026-01-31T11:00:00+00:00",
        "cursor": {"key": "orders/a", "below": "2026-01-31T11:59:59+00:00"},
        "dropped": ["s0"],
        "by": "p1",
        "n": 7,
    }


@given(checkpoints)
def test_a_checkpoint_comes_back_as_it_was(checkpoint: Checkpoint) -> None:
    root = load(through_json(dump_root(checkpoint)))
    kept = {segment.name: through_json(dump_segment(segment)) for segment in checkpoint.ledger.segments}
    assert root.writer is Writer.PROCESS
    parts = {segment.name: through_json(dump_uploads(segment)) for segment in checkpoint.upload_segments}
    found = [load_uploads(name, parts[name]) for name in root.uploads]
    assert restored(root, [load_segment(name, kept[name]) for name in root.segments], found) == checkpoint


@given(checkpoints)
def test_what_is_stored_is_stored_again_the_same(checkpoint: Checkpoint) -> None:
    first = through_json(dump_root(checkpoint))
    root = load(first)
    again = dump_root(restored(root, checkpoint.ledger.segments, checkpoint.upload_segments))
    # A moment is written in its own time zone and read back in UTC.
    moments = ("watermark", "frontier", "intents", "cursor", "floor", "seal")
    assert without(again, *moments) == without(first, *moments)


@given(st.none() | positions)
def test_a_position_comes_back_as_it_was(position: Position | None) -> None:
    assert load_position(through_json(dump_position(position)), "watermark") == position


@given(segments)
def test_a_segment_comes_back_as_it_was(segment: Segment) -> None:
    assert load_segment(segment.name, through_json(dump_segment(segment))) == segment


def test_segments_of_the_first_release_are_read() -> None:
    stored = {"v": 1, "high": "2026-01-31T12:00:00+00:00", "ids": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB"}
    assert load_segment("s", stored) == Segment("s", NOON, bytes(23) + b"\x01")


def test_a_full_segment_is_below_the_soft_limit_of_airflow() -> None:
    ids = packed(number.to_bytes(12, "big") for number in range(FULL_SEGMENT))
    assert len(json.dumps(dump_segment(Segment("s", NOON, ids)))) < 64 * 1024


# Times.


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31T12:00:00+00:00",
        "2026-01-31T12:00:00Z",
        "2026-01-31T12:00:00z",
        "2026-01-31 12:00:00+00:00",
        "2026-01-31T12:00+00:00",
        "2026-01-31T17:30:00+05:30",
        "2026-01-31T12:00:00.000000+00:00",
    ],
)
def test_a_time_may_be_written_in_several_ways(text: str) -> None:
    assert load_time(text, "watermark") == NOON
    assert load_time(text, "watermark").utcoffset() == NOON.utcoffset()


@pytest.mark.parametrize(
    "text",
    ["", "Z", "yesterday", "2026-13-31T12:00:00Z", "31.1.2026", "2026-01-31T25:00:00Z", "0001-01-01T00:00:00+05:00"],
)
def test_what_is_no_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(Unreadable) as refused:
        load_time(text, "watermark")
    assert str(refused.value) == f'watermark is {text!r}; write a time such as "2026-01-31T12:00:00+00:00"'


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00", "2026-01-31"])
def test_a_time_without_a_time_zone_is_refused_with_the_remedy(text: str) -> None:
    with pytest.raises(Unreadable) as refused:
        load_time(text, "watermark")
    assert str(refused.value) == f'watermark is {text!r} and has no time zone; add "+00:00" for UTC'


# What a person may edit.


@pytest.mark.parametrize(
    ("watermark", "position"),
    [
        ({"value": "2026-01-31T11:00:00+00:00", "tiebreak": "orders/b.csv"}, Position(at(-3600), "orders/b.csv")),
        ({"value": "2026-01-31T11:00:00+00:00", "tiebreak": ""}, Position(at(-3600))),
        ({"value": "2026-01-31T11:00:00Z"}, Position(at(-3600))),
        ("2026-01-31T11:00:00Z", Position(at(-3600))),
        ("2026-01-31T11:00:00+00:00", Position(at(-3600))),
        (None, None),
    ],
)
def test_a_watermark_may_be_edited(watermark: Any, position: Position | None) -> None:
    root = load(stored(watermark=watermark))
    assert (root.writer, root.checkpoint.watermark) == (Writer.PERSON, position)
    assert root.checkpoint.generation == 2, "the one that was left"
    assert root.segments == ("s1",), "they are still to be deleted"
    assert root.checkpoint.dropped == ("s0",)


def test_an_edit_drops_what_hung_on_the_old_watermark() -> None:
    checkpoint = load(stored(watermark=None)).checkpoint
    assert (checkpoint.frontier, checkpoint.intents, checkpoint.last_batch, len(checkpoint.ledger)) == (
        None,
        (),
        None,
        0,
    )


@pytest.mark.parametrize("gone", [("by",), ("n",), ("by", "n"), ("seal",), ("by", "n", "seal")])
def test_a_missing_sign_is_a_person_though_the_watermark_is_the_same(gone: tuple[str, ...]) -> None:
    root = load(without(stored(), *gone))
    assert (root.writer, root.checkpoint.watermark) == (Writer.PERSON, EXAMPLE.watermark)


@pytest.mark.parametrize("edit", [{"by": ""}, {"by": "p2"}, {"by": None}, {"n": 8}, {"generation": 3}, {"seal": "0"}])
def test_a_broken_seal_is_a_person(edit: dict[str, Any]) -> None:
    assert load(stored(**edit)).writer is Writer.PERSON


def test_the_tiebreak_is_under_the_seal_too() -> None:
    watermark = {"value": "2026-01-31T12:00:01+00:00", "tiebreak": "orders/b.csv"}
    assert load(stored(watermark=watermark)).writer is Writer.PERSON


def test_a_root_reduced_to_its_watermark_is_enough() -> None:
    fallback = blank(origin="mine", generation=4, n=9, dropped=("x",))
    root = load_root({"watermark": "2026-01-31T11:00:00Z"}, fallback)
    assert root.writer is Writer.PERSON
    assert root.checkpoint == blank(origin="mine", generation=4, n=9, dropped=("x",), watermark=Position(at(-3600)))


def test_generation_and_count_go_on_from_the_greater_of_what_is_known() -> None:
    edited = stored(watermark=None)
    ahead = load_root(edited, blank(generation=5, n=3)).checkpoint
    assert (ahead.generation, ahead.n) == (5, 7)
    behind = load_root(edited, blank(generation=1, n=9)).checkpoint
    assert (behind.generation, behind.n) == (2, 9)


def test_an_edited_root_says_which_source_it_was_made_for() -> None:
    """Else an edit would hide that the watermark belongs to another bucket."""
    root = load_root(stored(watermark=None), blank(name="other", source={"bucket": "sea"}))
    assert (root.checkpoint.name, root.checkpoint.source) == ("s3://lake/orders/", {"bucket": "lake"})


@pytest.mark.parametrize(
    "junk", [{"generation": "x"}, {"n": None}, {"source": 3}, {"name": 3}, {"segments": 3}, {"dropped": {}}]
)
def test_junk_beside_an_edited_watermark_is_left_out(junk: dict[str, Any]) -> None:
    root = load(stored(watermark="2026-01-31T11:00:00Z", **junk))
    assert root.checkpoint.watermark == Position(at(-3600))


# What is refused.


@pytest.mark.parametrize(
    "watermark", [5, 1.5, True, [], ["2026-01-31T12:00:00Z"], {}, {"value": 5}, {"value": None}, {"tiebreak": "a"}]
)
def test_a_watermark_that_is_no_time_is_refused_with_an_example(watermark: Any) -> None:
    with pytest.raises(Unreadable) as refused:
        load(stored(watermark=watermark))
    assert (
        str(refused.value) == f'watermark is {watermark!r}; write a time such as "2026-01-31T12:00:00+00:00", or null'
    )


def test_a_tiebreak_that_is_no_text_is_refused() -> None:
    with pytest.raises(Unreadable, match=r"watermark\.tiebreak is 5; write text, or leave it out"):
        load(stored(watermark={"value": "2026-01-31T12:00:00Z", "tiebreak": 5}))


@pytest.mark.parametrize("version", [3, 0, "1", None, 1.5, True])
def test_another_version_is_refused_by_name(version: Any) -> None:
    with pytest.raises(Unreadable) as refused:
        load(stored(v=version))
    assert str(refused.value) == (
        f"the root has version {version!r}; this release reads up to version 2: upgrade, or delete the key to reset"
    )


def test_a_root_of_the_first_release_is_read() -> None:
    root = without(stored(v=1), "uploads", "cursor", "floor")
    assert load(root) == replace(
        load(stored()), uploads=(), checkpoint=replace(load(stored()).checkpoint, cursor=None, floor=None)
    )


@pytest.mark.parametrize("root", [None, 5, "text", [], [{}], True])
def test_a_root_that_is_no_object_is_refused(root: Any) -> None:
    with pytest.raises(Unreadable, match=f"the root is a {type(root).__name__}, not an object"):
        load(root)


def test_a_root_without_a_watermark_is_refused() -> None:
    with pytest.raises(Unreadable, match="the root has no watermark; put it back, or delete the key to reset"):
        load(without(stored(), "watermark"))


@pytest.mark.parametrize("key", ["name", "source", "frontier", "origin", "batch", "intents"])
def test_a_sealed_root_that_lacks_something_is_refused_by_name(key: str) -> None:
    with pytest.raises(Unreadable, match=rf"the root is not complete \({key} is None\); delete the key to reset"):
        load(without(stored(), key))


@given(key=st.sampled_from(sorted(dump_root(EXAMPLE))), junk=plain)
def test_junk_anywhere_is_read_or_refused_but_never_a_crash(key: str, junk: Any) -> None:
    with suppress(Unreadable):
        assert load(stored(**{key: junk})).checkpoint.name is not None


@given(plain)
def test_junk_as_a_root_is_read_or_refused_but_never_a_crash(junk: Any) -> None:
    with pytest.raises(Unreadable):
        load(junk)


@given(st.dictionaries(st.sampled_from(["batch", "upto", "replaces", "x"]), plain))
def test_junk_as_an_intent_is_read_or_refused_but_never_a_crash(junk: Any) -> None:
    with pytest.raises(Unreadable):
        load(stored(intents=[junk]))


def test_an_intent_without_an_end_is_refused() -> None:
    with pytest.raises(Unreadable, match="an intent is not complete; delete the key to reset"):
        load(stored(intents=[{"batch": "b1", "upto": None, "replaces": []}]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"v": 2}, "segment s1 is not of version 1"),
        ({"v": None}, "segment s1 is not of version 1"),
        ({"ids": "abc"}, "segment s1 cannot be read: "),
        ({"ids": "AAAA"}, "segment s1 ends in the middle of an identity"),
        ({"ids": "é"}, "segment s1 cannot be read: "),
        ({"ids": 5}, "segment s1 cannot be read: "),
        ({"ids": None}, "segment s1 cannot be read: "),
        ({"high": "soon"}, "segment s1: high is 'soon'"),
        ({"high": 5}, "segment s1 cannot be read: "),
        ({"high": None}, "segment s1 cannot be read: "),
    ],
)
def test_a_segment_that_cannot_be_read_is_refused(change: dict[str, Any], message: str) -> None:
    whole = dump_segment(Segment("s1", NOON, item(1).identity))
    with pytest.raises(Unreadable) as refused:
        load_segment("s1", {**whole, **change})
    assert message in str(refused.value)


@pytest.mark.parametrize("value", [None, 5, "text", []])
def test_a_segment_that_is_no_object_is_refused(value: Any) -> None:
    with pytest.raises(Unreadable, match="segment s1 is not of version 1"):
        load_segment("s1", value)


@given(texts, st.dictionaries(st.sampled_from(["v", "high", "ids"]), plain))
def test_junk_as_a_segment_is_read_or_refused_but_never_a_crash(name: str, junk: Any) -> None:
    with pytest.raises(Unreadable):
        load_segment(name, {"v": 1, **junk})


def test_unreadable_is_a_value_error() -> None:
    assert issubclass(Unreadable, ValueError)


@given(batch_ids, batch_ids)
def test_a_seal_tells_writers_apart(one: str, other: str) -> None:
    seals = {dump_root(blank(by=by))["seal"] for by in (one, other)}
    assert len(seals) == len({one, other})
