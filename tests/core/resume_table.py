"""The decision table, row by row. The tests of the decision run it; a test of the documentation finds it there as it is here.

A cell is the decision, and what becomes of the token where that is not clear: every other submission has a new one.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_state_watchers.core.resume import JobPhase, ResumeDecision

ACTIVE, SUCCEEDED, FAILED, GONE, UNKNOWN = JobPhase
SUBMIT, REATTACH, COLLECT, ADOPT, WAIT, CANCEL_THEN_SUBMIT, FAIL = ResumeDecision


@dataclass(frozen=True)
class Cell:
    decision: ResumeDecision
    same_token: bool = False
    otherwise: ResumeDecision | None = None
    """Where the job must not be cancelled, or where jobs were gone too often."""


@dataclass(frozen=True)
class Row:
    """``retry``: no clear; ``rerun``: after a clear, also with "reuse" for another request; ``reuse``: for the same one."""

    stands: str
    look: str
    retry: Cell
    rerun: Cell | None
    reuse: Cell | None


RESEND = Cell(SUBMIT, same_token=True)
NEW = Cell(SUBMIT)

TABLE = [
    Row("nothing", "", NEW, None, None),
    Row("an intent", "found", Cell(ADOPT), Cell(ADOPT), Cell(ADOPT)),
    Row("an intent", "not found", RESEND, NEW, RESEND),
    Row("an intent", "unknown", Cell(WAIT), Cell(WAIT), Cell(WAIT)),
    Row("a job", "active", Cell(REATTACH), Cell(CANCEL_THEN_SUBMIT, otherwise=FAIL), Cell(REATTACH)),
    Row("a job", "succeeded", Cell(COLLECT), NEW, Cell(COLLECT)),
    Row("a job", "failed", NEW, NEW, NEW),
    Row("a job", "gone", Cell(SUBMIT, otherwise=FAIL), NEW, NEW),
    Row("a job", "unknown", Cell(WAIT), Cell(WAIT), Cell(WAIT)),
]

PHASES = {
    "": GONE,
    "found": ACTIVE,
    "not found": GONE,
    "active": ACTIVE,
    "succeeded": SUCCEEDED,
    "failed": FAILED,
    "gone": GONE,
    "unknown": UNKNOWN,
}
