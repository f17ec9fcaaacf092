"""What a try does about an earlier try's job: the table row by row, and what is stored for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_state_watchers.core.resume import (
    Circumstances,
    JobPhase,
    JobRecord,
    ResumeDecision,
    id_of,
    is_cleared,
    keeps_token,
    next_record,
    resolve_reconnect,
)
from airflow_state_watchers.core.resume_codec import digests_of, drifted, dump_record, load_record
from airflow_state_watchers.core.stored import Unreadable
from tests.core.resume_table import FAIL, GONE, PHASES, SUBMIT, TABLE, Cell, Row

RECORD = JobRecord(token="t" * 36, max_tries=2)


def record_of(row: Row) -> JobRecord | None:
    if row.stands == "nothing":
        return None
    return replace(RECORD, external_id=7 if row.stands == "a job" else None)


def circumstances(row: Row, column: str, **more: Any) -> Circumstances:
    cleared = column != "retry"
    return Circumstances(
        external_id=7 if row.stands == "a job" else None,
        found=row.look == "found",
        max_tries=4 if cleared else 2,
        on_clear="rerun" if column in ("retry", "rerun") else "reuse",
        same_job=column != "reuse, another request",
        **{"can_cancel": True, **more},
    )


def cells() -> Iterator[tuple[Row, str, Cell]]:
    for row in TABLE:
        for column, cell in (("retry", row.retry), ("rerun", row.rerun), ("reuse", row.reuse)):
            if cell is not None:
                yield row, column, cell
                if column == "rerun":
                    yield row, "reuse, another request", cell


@pytest.mark.parametrize(
    ("row", "column", "cell"), list(cells()), ids=[f"{r.stands}-{r.look}-{column}" for r, column, _ in cells()]
)
def test_the_table(row: Row, column: str, cell: Cell) -> None:
    record, phase, now = record_of(row), PHASES[row.look], circumstances(row, column)
    assert resolve_reconnect(record, phase, now) is cell.decision
    unlike = replace(now, can_cancel=False, max_resubmits=0)
    assert resolve_reconnect(record, phase, unlike) is (cell.otherwise or cell.decision)
    if cell.decision is SUBMIT:
        made = next_record(record, phase, now, token="new", stored="old", identity=None)
        assert (made.token == RECORD.token) is cell.same_token is keeps_token(record, now)


def test_the_table_has_every_case() -> None:
    looks = {(row.stands, row.look) for row in TABLE}
    assert looks == {
        ("nothing", ""),
        *product(["an intent"], ["found", "not found", "unknown"]),
        *product(["a job"], [phase.value for phase in JobPhase]),
    }
    assert {cell.decision for _, _, cell in cells()} | {FAIL} == set(ResumeDecision)


def test_a_retry_does_not_mind_a_changed_request_and_a_job_of_upstreams_class_counts_as_the_same() -> None:
    now = Circumstances(external_id=7, max_tries=2, on_clear="reuse", same_job=False)
    assert resolve_reconnect(RECORD, JobPhase.ACTIVE, now) is ResumeDecision.REATTACH
    assert resolve_reconnect(None, JobPhase.ACTIVE, replace(now, max_tries=9)) is ResumeDecision.REATTACH
    assert resolve_reconnect(None, GONE, now) is SUBMIT
    assert resolve_reconnect(None, GONE, replace(now, max_resubmits=0)) is FAIL


def test_jobs_that_are_gone_are_submitted_again_so_often_and_no_more() -> None:
    record, tokens = replace(RECORD, external_id=0), count_of_tokens()
    now = Circumstances(external_id=0, max_tries=2, max_resubmits=3)
    for resubmits in (1, 2, 3):
        assert resolve_reconnect(record, GONE, now) is SUBMIT
        made = next_record(record, GONE, now, token=next(tokens), stored=0, identity=None)
        assert (made.resubmits, made.attempt, made.previous, made.external_id) == (resubmits, 1 + resubmits, 0, None)
        record = replace(made, external_id=0)
    assert resolve_reconnect(record, GONE, now) is FAIL
    cleared = replace(now, max_tries=5)
    assert resolve_reconnect(record, GONE, cleared) is SUBMIT
    assert next_record(record, GONE, cleared, token="x", stored=0, identity=None).resubmits == 0
    assert next_record(record, JobPhase.FAILED, now, token="x", stored=0, identity=None).resubmits == 0


def count_of_tokens() -> Iterator[str]:
    yield from (f"token-{number}" for number in range(9))


@pytest.mark.parametrize("falsy", [0, "", False, [], {}])
def test_falsy_ids_are_ids(falsy: Any) -> None:
    assert id_of(None, falsy) == falsy
    assert id_of(RECORD, falsy) == falsy
    assert id_of(replace(RECORD, external_id=falsy), None) == falsy
    now = Circumstances(external_id=falsy, max_tries=2)
    assert resolve_reconnect(RECORD, JobPhase.ACTIVE, now) is ResumeDecision.REATTACH
    assert id_of(replace(RECORD, previous=falsy), falsy) is None


def test_an_older_jobs_id_is_not_the_id_of_this_one_and_upstreams_newer_id_is() -> None:
    intent = replace(RECORD, previous="old")
    assert id_of(intent, "old") is None
    assert id_of(intent, None) is None
    assert id_of(intent, "new") == "new"
    assert id_of(replace(intent, external_id="mine"), "upstream's") == "upstream's"
    assert id_of(replace(RECORD, previous=0), False) is False


def test_only_a_clear_moves_max_tries() -> None:
    assert not is_cleared(None, 5)
    assert not is_cleared(RECORD, 2)
    assert is_cleared(RECORD, 4)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
records = st.builds(
    JobRecord,
    token=st.text(min_size=1),
    max_tries=st.integers(0, 99),
    attempt=st.integers(1, 99),
    identity=st.none() | st.dictionaries(st.text(), st.text()),
    previous=json_values,
    external_id=json_values,
    resubmits=st.integers(0, 9),
)


@given(records)
def test_a_record_is_read_as_it_was_written(record: JobRecord) -> None:
    assert load_record(json.loads(json.dumps(dump_record(record)))) == record


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"v": 2}, "version is 2; this release reads version 1"),
        ({"v": True}, "version is True"),
        ({"token": ""}, "token is ''"),
        ({"token": 5}, "token is 5"),
        ({"attempt": 0}, "attempt is 0"),
        ({"max_tries": "3"}, "max_tries is '3'"),
        ({"max_tries": True}, "max_tries is True"),
        ({"resubmits": -1}, "resubmits is -1"),
        ({"identity": ["x"]}, "identity does not hold digests"),
        ({"identity": {"x": 1}}, "identity does not hold digests"),
    ],
)
def test_a_record_that_cannot_be_read_is_refused_by_name(change: dict[str, Any], told: str) -> None:
    with pytest.raises(Unreadable, match=told):
        load_record(dump_record(RECORD) | change)


@pytest.mark.parametrize("stored", ["text", 5, [], None, {}])
def test_what_is_no_record_is_refused(stored: Any) -> None:
    with pytest.raises(Unreadable):
        load_record(stored)


@pytest.mark.parametrize("field", ["token", "attempt", "max_tries", "identity", "previous", "external_id", "resubmits"])
def test_a_record_without_a_field_is_refused(field: str) -> None:
    stored = dump_record(RECORD)
    del stored[field]
    with pytest.raises(Unreadable, match=field):
        load_record(stored)


def test_an_identity_is_stored_as_digests_and_compared_field_by_field() -> None:
    old = digests_of({"query": "SELECT 1", "password": "hunter2", "gone": 1})
    new = digests_of({"query": "SELECT 2", "password": "hunter2", "added": None})
    assert "hunter2" not in json.dumps(old)
    assert drifted(old, new) == ["added", "gone", "query"]
    assert drifted(old, old) == []
    assert drifted(None, new) == drifted(old, None) == []


def test_a_digest_does_not_depend_on_order_process_or_kind_of_sequence() -> None:
    def one() -> None: ...

    assert digests_of({"a": {"x": 1, 2: "y"}}) == digests_of({"a": {2: "y", "x": 1}})
    assert digests_of({"a": (1, 2)}) == digests_of({"a": [1, 2]}) != digests_of({"a": [2, 1]})
    assert digests_of({"a": {"p", "q", "r"}}) == digests_of({"a": {"r", "q", "p"}})
    assert digests_of({"a": one}) == digests_of({"a": one.__qualname__})
    assert digests_of("text") == digests_of({"identity": "text"})
    assert digests_of({"a": 0}) != digests_of({"a": False})
    assert digests_of({"a": "\ud800"})
