"""The table of what a stored root means to the process that looks at it, row by row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_state_watchers.core.checkpoint import Checkpoint, Intent
from airflow_state_watchers.core.codec import Root, Writer
from airflow_state_watchers.core.position import Position
from airflow_state_watchers.core.verdict import Verdict, judge
from tests.core.items import at, blank

ME, OTHER = "p1", "p2"


def root(checkpoint: Checkpoint, writer: Writer = Writer.PROCESS) -> Root:
    return Root(checkpoint, (), (), writer)


def known(by: str, n: int, watermark: float = 5, **more: Any) -> Checkpoint:
    return blank(watermark=Position(at(watermark)), frontier=Position(at(watermark)), by=by, n=n, **more)


MINE = known(ME, 7)

NO_ROOT = {
    # (marked, mine): verdict
    (False, None): Verdict.FIRST,
    (False, MINE): Verdict.LOST,
    (True, None): Verdict.RESET,
    (True, MINE): Verdict.RESET,
}


@pytest.mark.parametrize(("case", "verdict"), NO_ROOT.items())
def test_without_a_root(case: tuple[bool, Checkpoint | None], verdict: Verdict) -> None:
    marked, mine = case
    assert judge(None, marked=marked, mine=mine, by=ME) is verdict


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("mine", [None, MINE, known(OTHER, 9), known(ME, 1, 99)])
def test_a_person_always_begins_a_new_generation(marked: bool, mine: Checkpoint | None) -> None:
    for stored in (MINE, known(OTHER, 3), blank()):
        assert judge(root(stored, Writer.PERSON), marked=marked, mine=mine, by=ME) is Verdict.MOVED


ROWS = [
    # what is stored, what this process remembers, the verdict
    ("a new process goes on from whatever is stored", known(OTHER, 3), None, Verdict.ADOPT),
    ("a new process, its marker not written yet", known(OTHER, 1), None, Verdict.ADOPT),
    ("this process wrote it last", MINE, MINE, Verdict.UNCHANGED),
    (
        "a frontier that is only in memory is no change",
        MINE,
        replace(MINE, frontier=Position(at(9))),
        Verdict.UNCHANGED,
    ),
    ("what this process adopted is still there", known(OTHER, 7), known(OTHER, 7), Verdict.UNCHANGED),
    ("a write that was said to have failed was done", known(ME, 8, 6), MINE, Verdict.UNCHANGED),
    ("an old copy of its own write was put back", known(ME, 6, 4), MINE, Verdict.MOVED),
    ("... by which it has come no less far", known(ME, 6), MINE, Verdict.MOVED),
    ("another one has come further", known(OTHER, 9, 6), MINE, Verdict.ADOPT),
    ("another one has come as far", known(OTHER, 8), MINE, Verdict.ADOPT),
    ("another one has written as often", known(OTHER, 7), MINE, Verdict.ADOPT),
    ("another one is on its way", known(OTHER, 8, intents=(Intent("b", Position(at(6))),)), MINE, Verdict.ADOPT),
    (
        "... and this one's frontier, in memory, further",
        known(OTHER, 8, intents=(Intent("b", Position(at(6))),)),
        replace(MINE, frontier=Position(at(9))),
        Verdict.ADOPT,
    ),
    ("another one is behind", known(OTHER, 8, 4), MINE, Verdict.STALE),
    ("another one has delivered nothing yet", blank(by=OTHER, n=8), MINE, Verdict.STALE),
    ("another one is in a later generation", known(OTHER, 8, 1, generation=2), MINE, Verdict.ADOPT),
    ("another one is in an earlier generation", known(OTHER, 99, 99), replace(MINE, generation=2), Verdict.STALE),
    ("another one wrote over what was adopted", known(OTHER, 9, 6), known(OTHER, 7), Verdict.ADOPT),
]


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize(("stored", "mine", "verdict"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_with_a_root_of_a_process(stored: Checkpoint, mine: Checkpoint | None, verdict: Verdict, marked: bool) -> None:
    assert judge(root(stored), marked=marked, mine=mine, by=ME) is verdict


def test_every_verdict_has_a_row() -> None:
    assert {*NO_ROOT.values(), *(row[3] for row in ROWS), Verdict.MOVED} == set(Verdict)


def test_a_verdict_says_what_it_means() -> None:
    assert Verdict.MOVED.value == "a person set the watermark: begin a new generation there"
