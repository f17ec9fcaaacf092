"""Reading page by page: complete, in order and bounded, however Airflow orders events of one time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_state_watchers.core.chain import Event
from airflow_state_watchers.core.micros import micros_of
from airflow_state_watchers.tasks import reading
from airflow_state_watchers.tasks.events import event_of
from airflow_state_watchers.tasks.reading import FIRST_PAGE, Findings, look_back, scan
from airflow_state_watchers.tasks.surroundings import RawEvent
from tests.tasks.sender import START, item


def raw(number: int, time: int, *, items: int = 1, previous: int | None = None, watcher: str = "w") -> RawEvent:
    payload: dict[str, Any] = {
        "v": 1,
        "kind": "s3_objects",
        "watcher": watcher,
        "generation": 1,
        "batch_id": f"b{number}",
        "previous": None if previous is None else f"b{previous}",
        "bucket": "lake",
        "items": [item(f"{number}/{n}") for n in range(items)],
    }
    return RawEvent(number, START + timedelta(seconds=time), payload)


class Log:
    """Events of one time come in another order with every question, as a database may give them."""

    def __init__(self, events: Sequence[RawEvent]) -> None:
        self.events = events
        self.asked: list[int] = []
        self._random = Random(7)  # noqa: S311

    def page(
        self, *, after: datetime | None, before: datetime | None, limit: int, ascending: bool = True
    ) -> Sequence[RawEvent]:
        found = [e for e in self.events if (after is None or e.time >= after) and (before is None or e.time <= before)]
        self._random.shuffle(found)
        found.sort(key=lambda event: event.time, reverse=not ascending)
        self.asked.append(min(limit, len(found)))
        return found[:limit]


@given(st.lists(st.integers(0, 12), max_size=150), st.none() | st.integers(0, 12), st.none() | st.integers(0, 12))
def test_every_event_comes_once_and_in_order(seconds: list[int], low: int | None, high: int | None) -> None:
    events = [raw(number, second) for number, second in enumerate(seconds)]
    bounds = [None if bound is None else micros_of(START) + bound * 1_000_000 for bound in (low, high)]
    wanted = [
        event
        for event in sorted(events, key=lambda event: (event.time, event.id))
        if (bounds[0] is None or micros_of(event.time) >= bounds[0])
        and (bounds[1] is None or micros_of(event.time) <= bounds[1])
    ]
    assert list(scan(Log(events), *bounds)) == wanted


def test_a_page_of_large_events_is_small() -> None:
    """3,000 events of 1,000 objects, some 150 KB each: never more than 20 of them are held."""
    log = Log([raw(number, number, items=0) for number in range(3000)])
    log.events = [RawEvent(e.id, e.time, {**(e.payload or {}), "items": [{}] * 1000}) for e in log.events]
    assert sum(1 for _ in scan(log)) == 3000
    assert max(log.asked) == FIRST_PAGE
    assert len(log.asked) < 3000 / (FIRST_PAGE - 1) + 2


def test_pages_of_small_events_grow() -> None:
    log = Log([raw(number, number) for number in range(3000)])
    assert sum(1 for _ in scan(log)) == 3000
    assert len(log.asked) < 10


def event(one: RawEvent) -> Event:
    assert one.payload is not None
    return event_of(one.id, one.time, one.payload)


def test_looking_back_finds_what_an_event_follows() -> None:
    events = [raw(number, number, previous=number - 1) for number in range(1, 60)]
    others = [raw(number + 100, number, watcher="other") for number in range(1, 60)]
    log = Log([*events, *others])
    stranger = raw(999, 60, previous=30)
    found = look_back(log, event(stranger))
    assert found[0].batch_id == "b30" or "b30" in [one.batch_id for one in found]
    assert {one.watcher for one in found} == {"w"}
    assert found == sorted(found, key=lambda one: one.order)


def test_looking_back_in_vain_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log([raw(number, number // 30) for number in range(300)])
    stranger = event(raw(999, 60, previous=5000))
    assert look_back(log, stranger) == []
    monkeypatch.setattr(reading, "_LOOK_BACK", 50)
    log.asked.clear()
    assert look_back(log, stranger) == []
    assert sum(log.asked) < 300


def test_payloads_beyond_the_cache_are_read_again_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CACHED_ITEMS", 100)
    log = Log([raw(number, number // 3, items=2) for number in range(400)])
    findings = Findings(log)
    events = [findings.add(one) for one in scan(log)]
    assert len(findings._payloads) == 50, "100 items were kept"
    findings.keep({one.id for one in events if one.id % 2})
    log.asked.clear()
    wanted = [one for one in events if one.id % 2]
    found = list(findings.payloads(wanted))
    assert [payload and payload["batch_id"] for payload in found] == [one.batch_id for one in wanted]
    assert sum(log.asked) < 500, "one pass"


def test_a_payload_that_is_gone_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CACHED_ITEMS", 0)
    log = Log([raw(number, number) for number in range(5)])
    findings = Findings(log)
    events = [findings.add(one) for one in scan(log)]
    log.events = [one for one in log.events if one.id not in (0, 2, 4)]
    found = [payload and payload["batch_id"] for payload in findings.payloads(events)]
    assert found == [None, "b1", None, "b3", None]
    assert findings.payload(2, events[2].time) is None
    assert (findings.payload(3, events[3].time) or {})["batch_id"] == "b3"
