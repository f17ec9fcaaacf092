"""Manifests as bytes, and their names."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_state_watchers.core.envelope import NotJson
from airflow_state_watchers.core.manifest import Unreadable, dump, folder_of, is_name, load, name_of
from tests.core.items import plain

objects = st.dictionaries(st.text(max_size=5), plain, max_size=3)


@given(st.lists(objects, max_size=5))
def test_what_is_written_is_read(items: list[dict[str, Any]]) -> None:
    assert load(dump(items)) == items
    assert dump(items) == dump(items)


def test_equal_items_make_equal_bytes_whatever_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    before = dump([{"key": "a"}])
    monkeypatch.setattr("time.time", lambda: 1e9)
    assert dump([{"key": "a"}]) == before


def test_it_is_one_line_for_each_item() -> None:
    data = gzip.decompress(dump([{"key": "a\nb\u2028"}, {"key": "\u00e9"}]))
    assert data == b'{"key": "a\\nb\\u2028"}\n{"key": "\\u00e9"}\n'


@pytest.mark.parametrize("value", [float("nan"), 2**64, "\ud800", {1}])
def test_what_an_event_would_not_take_is_refused(value: Any) -> None:
    with pytest.raises(NotJson):
        dump([{"a": value}])


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", dump([{"a": 1}])[:-9], dump([{"a": "b" * 99}])[:20], gzip.compress(b"{"), gzip.compress(b"1\n")],
)
def test_anything_else_is_unreadable(data: bytes) -> None:
    if not data:
        assert load(data) == [], "gzip takes nothing for nothing; the count tells"
        return
    with pytest.raises(Unreadable):
        load(data)


def test_a_broken_gzip_is_unreadable() -> None:
    data = bytearray(dump([{"a": "b" * 99}]))
    data[15] ^= 0xFF
    with pytest.raises(Unreadable):
        load(bytes(data))


def test_a_folder_is_readable_and_the_watchers_own() -> None:
    names = ["s3://lake/orders/", "s3://lake-orders", "s3://lake/orders", "", "../..", "\u00e9\ud800", "x" * 500]
    folders = [folder_of(name) for name in names]
    assert folders[0].startswith("s3-lake-orders-")
    assert len(set(folders)) == len(names)
    for folder in folders:
        assert folder.isascii()
        assert "/" not in folder
        assert not folder.startswith(".")
        assert len(folder) <= 73


def test_a_manifest_is_known_by_its_name() -> None:
    assert is_name(name_of("0123456789abcdef01234567"))
    for name in ("a.jsonl.gz", "0123456789abcdef01234567.jsonl.gz\n", "x/0123456789abcdef01234567.jsonl.gz", ""):
        assert not is_name(name)
