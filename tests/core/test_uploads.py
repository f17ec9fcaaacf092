"""Multipart uploads: remembered while they last, looked up when they are gone, and each product delivered once."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_state_watchers.core.ledger import Ledger
from airflow_state_watchers.core.position import Item, Position
from airflow_state_watchers.core.stored import Unreadable
from airflow_state_watchers.core.upload_codec import dump_uploads, load_uploads
from airflow_state_watchers.core.uploads import (
    SEGMENT_BYTES,
    Remembered,
    Upload,
    UploadSegment,
    committed,
    looked,
    pack,
    scanned,
    upload_id,
)
from airflow_state_watchers.core.window import Selection, Window
from tests.core.items import at, item, plain, uploads


def upload(
    key: str = "a", began: float = 0, *, missed: int = 0, known: tuple[bytes, ...] = (), number: int = 0
) -> Upload:
    return Upload(key, upload_id(f"{key}{number}"), at(began), missed, known)


def select(found: list[Item], remembered: list[Upload], *, low: float = 100, upto: float = 200) -> list[Item]:
    selection = Selection(Window(at(low), Position(at(upto))), Ledger(), limit=100, uploads=Remembered.of(remembered))
    selection.add(found)
    return list(selection.result().items)


def test_what_is_in_progress_is_remembered_and_what_is_not_any_more_is_missed() -> None:
    both = [upload("a"), upload("b")]
    first = looked((), both, oldest=None)
    assert first == tuple(both)
    second = looked(first, both[:1], oldest=None)
    assert second == (upload("a"), upload("b", missed=1))
    assert looked(second, [], oldest=None) == (upload("a", missed=1), upload("b", missed=2))


def test_an_upload_that_is_listed_again_was_never_gone() -> None:
    assert looked([upload(missed=2)], [upload()], oldest=None) == (upload(),)


def test_nothing_more_is_gone_where_s3_does_not_tell() -> None:
    assert looked([upload("a"), upload("b", missed=1)], None, oldest=None) == (upload("a"), upload("b", missed=2))


def test_an_upload_that_is_too_old_is_not_remembered_but_still_looked_up_once_it_is_gone() -> None:
    old = upload(began=5)
    assert looked([old], [old], oldest=at(6)) == ()
    assert looked([old], [old], oldest=at(5)) == (old,)
    assert looked([old], [], oldest=at(6)) == (upload(began=5, missed=1),)


def test_what_an_upload_made_is_new_however_old_its_stamp() -> None:
    product, other = item(0, "a", "made-2"), item(0, "b", "stood")
    assert select([product, other], [upload(missed=1)]) == [product]


@pytest.mark.parametrize(("stamp", "is_made"), [(-2, False), (-1, True), (0, True), (1, True), (2, False)])
def test_what_an_upload_made_carries_its_time(stamp: float, is_made: bool) -> None:
    product = item(stamp)
    assert select([product], [upload(missed=1)]) == ([product] if is_made else [])


def test_an_upload_in_progress_has_made_nothing() -> None:
    assert select([item(0)], [upload()]) == []


def test_what_is_known_of_an_upload_is_not_its_work() -> None:
    assert select([item(0)], [upload(missed=1, known=(item(0).identity,))]) == []


def test_late_work_stands_before_what_is_in_the_window() -> None:
    late, young = item(0, "z"), item(150, "a")
    assert select([young, late], [upload("z", missed=1)]) == [late, young]


def test_what_is_delivered_already_is_told_of_the_uploads_that_might_have_made_it() -> None:
    known = Ledger().with_items([item(150, "a"), item(150, "b")], name="s")
    selection = Selection(Window(at(100), Position(at(200))), known, limit=9, uploads=Remembered.of([upload("a", 150)]))
    selection.add([item(150, "a"), item(150, "b")])
    assert selection.result().old == (item(150, "a"),)


def scan(*remembered: Upload, new: list[Item] | None, old: list[Item] | None = None, horizon: float = 100) -> Any:
    return scanned(remembered, new=new, old=old or [], horizon=at(horizon))


def test_an_upload_is_forgotten_when_a_second_look_finds_nothing_of_it() -> None:
    assert scan(upload(missed=1), new=[]) == (upload(missed=1),)
    assert scan(upload(missed=2), new=[]) == ()
    assert scan(upload(missed=2), new=[item(0, "b"), item(50, "a")]) == ()


def test_an_upload_whose_work_was_found_waits_for_its_delivery() -> None:
    assert scan(upload(missed=2), new=[item(0)]) == (upload(missed=2),)


def test_nothing_is_forgotten_where_not_all_was_looked_at_or_its_stamp_has_not_settled() -> None:
    assert scan(upload(missed=5), new=None) == (upload(missed=5),)
    assert scan(upload(missed=5), new=[], horizon=1) == (upload(missed=5),)
    assert scan(upload(missed=5), new=[], horizon=1.001) == ()


def test_what_is_old_is_known_once() -> None:
    once = scan(upload(), new=[], old=[item(0), item(9), item(0, "b")])
    assert once == (upload(known=(item(0).identity,)),)
    assert scan(*once, new=[], old=[item(0)]) == once


def test_a_delivery_ends_the_upload_that_made_it_and_is_known_of_those_in_progress() -> None:
    remembered = (upload(missed=1), upload(number=1), upload("b"))
    assert committed(remembered, [item(0)]) == (upload(number=1, known=(item(0).identity,)), upload("b"))
    assert committed(remembered, []) == remembered
    assert committed((), [item(0)]) == ()


# Stored.


@given(st.lists(uploads, max_size=4, unique_by=lambda found: found.id).map(tuple))
def test_uploads_come_back_as_they_were(found: tuple[Upload, ...]) -> None:
    segment = UploadSegment("p-u1.0", found)
    assert load_uploads("p-u1.0", json.loads(json.dumps(dump_uploads(segment)))) == segment


@given(plain)
def test_junk_as_uploads_is_read_or_refused_but_never_a_crash(junk: Any) -> None:
    for stored in (junk, {"v": 1, "uploads": junk}, {"v": 1, "uploads": [junk]}, {"v": 1, "uploads": [["a", junk]]}):
        with suppress(Unreadable):
            load_uploads("s", stored)


@pytest.mark.parametrize(
    "row",
    [
        ["a", "0a1b2c"],
        [5, "0a1b2c", "2026-01-31T12:00:00+00:00", 0, []],
        ["a", "no hex", "2026-01-31T12:00:00+00:00", 0, []],
        ["a", "0a1b2c", "soon", 0, []],
        ["a", "0a1b2c", "2026-01-31T12:00:00+00:00", -1, []],
        ["a", "0a1b2c", "2026-01-31T12:00:00+00:00", True, []],
        ["a", "0a1b2c", "2026-01-31T12:00:00+00:00", 0, ["0a"]],
    ],
)
def test_an_upload_that_cannot_be_read_is_refused(row: list[Any]) -> None:
    with pytest.raises(Unreadable, match="uploads s"):
        load_uploads("s", {"v": 1, "uploads": [row]})
    with pytest.raises(Unreadable, match="uploads s are not of version 1"):
        load_uploads("s", {"v": 2, "uploads": []})


def many(count: int, *, key: str = "orders/{}.parquet") -> list[Upload]:
    return [Upload(key.format(number), upload_id(str(number)), at(0)) for number in range(count)]


def test_five_thousand_uploads_are_stored_in_pieces_below_the_soft_limit_of_airflow() -> None:
    for key in ("{}", "k" * 1000 + "{}"):
        parts = pack(many(5000, key=key), (), name="p-u1")
        assert sum(len(part.uploads) for part in parts) == 5000
        assert max(len(json.dumps(dump_uploads(part))) for part in parts) < 64 * 1024
        assert len({part.name for part in parts}) == len(parts)


def test_an_upload_more_or_less_changes_one_piece() -> None:
    before = pack(many(500), (), name="p-u1")
    assert len(before) > 1
    assert pack(many(500), before, name="p-u2") == before
    after = pack(many(501)[1:], before, name="p-u2")
    assert 1 <= len(set(after) - set(before)) <= 2
    assert all(part.name.startswith("p-u2.") for part in set(after) - set(before))
    assert SEGMENT_BYTES < 64 * 1024
