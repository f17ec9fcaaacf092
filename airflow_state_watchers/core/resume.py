"""What a try does about the job that an earlier try may have started: a table, and what a task remembers for it.

An *external id* is the service's name for a job: any JSON value but ``None``. So ``0`` and ``""`` are ids.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Literal, TypeAlias

JobId: TypeAlias = Any
"""JSON; ``None`` is no id."""
OnClear: TypeAlias = Literal["rerun", "reuse"]


class JobPhase(Enum):
    """What a look at a job has shown. ``UNKNOWN``: the look failed, or its answer means nothing to the operator."""

    ACTIVE = "active"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    GONE = "gone"
    UNKNOWN = "unknown"


class ResumeDecision(Enum):
    SUBMIT = "submit"
    REATTACH = "reattach"
    COLLECT = "collect"
    ADOPT = "adopt"
    WAIT = "wait"
    CANCEL_THEN_SUBMIT = "cancel then submit"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What a task remembers of its job, stored before the job is submitted.

    ``token`` is the name that we chose for the job, ``attempt`` counts the tokens. ``identity`` has a digest per field of the
    request, or is ``None`` if nobody asked for one. ``previous`` is the id that stood under upstream's key when this token was
    made: it belongs to an older job. ``resubmits`` counts the jobs that were gone since the last failure or clear.
    """

    token: str
    max_tries: int
    attempt: int = 1
    identity: Mapping[str, str] | None = None
    previous: JobId = None
    external_id: JobId = None
    resubmits: int = 0


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the decision rests on beside the record and the phase.

    ``found``: a job was found by its token and its id is not stored yet. ``same_job``: the request is still the same one.
    """

    external_id: JobId = None
    found: bool = False
    max_tries: int = 0
    on_clear: OnClear = "rerun"
    same_job: bool = True
    can_cancel: bool = False
    max_resubmits: int = 1


def same_id(one: JobId, other: JobId) -> bool:
    """Compare as JSON does: ``0`` is neither ``False`` nor ``0.0``."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def id_of(record: JobRecord | None, stored: JobId) -> JobId:
    """Return the id of the task's current job, or ``None`` if it has none yet.

    ``stored`` is what stands under upstream's key. An id there that is neither the older job's nor the record's was written
    by upstream's class in between, or by us just before a crash: it is the current one.
    """
    if record is None:
        return stored
    if record.external_id is None:
        return None if same_id(stored, record.previous) else stored
    return record.external_id if stored is None else stored


def is_cleared(record: JobRecord | None, max_tries: int) -> bool:
    """Whether the task was cleared since the record was written: a clear raises ``max_tries``, a retry does not."""
    return record is not None and record.max_tries != max_tries


def resolve_reconnect(record: JobRecord | None, phase: JobPhase, now: Circumstances) -> ResumeDecision:
    """Decide what this try does.

    ``phase`` is the phase of the job ``now.external_id``. Without an id it says how the search by token ended: ``GONE`` if
    there is no such job, or no way to search; ``UNKNOWN`` if the search failed.
    """
    if now.external_id is None:
        return _without_id(record, phase, found=now.found)
    if phase is JobPhase.UNKNOWN:
        return ResumeDecision.WAIT
    if begins_afresh(record, now):
        return _afresh(phase, can_cancel=now.can_cancel)
    resubmits = 0 if record is None else record.resubmits
    if phase is JobPhase.GONE and resubmits >= now.max_resubmits and not is_cleared(record, now.max_tries):
        return ResumeDecision.FAIL
    return _CONTINUED[phase]


_CONTINUED = {
    JobPhase.ACTIVE: ResumeDecision.REATTACH,
    JobPhase.SUCCEEDED: ResumeDecision.COLLECT,
    JobPhase.FAILED: ResumeDecision.SUBMIT,
    JobPhase.GONE: ResumeDecision.SUBMIT,
}


def _without_id(record: JobRecord | None, phase: JobPhase, *, found: bool) -> ResumeDecision:
    if record is None:
        return ResumeDecision.SUBMIT
    if found:
        return ResumeDecision.ADOPT
    return ResumeDecision.WAIT if phase is JobPhase.UNKNOWN else ResumeDecision.SUBMIT


def begins_afresh(record: JobRecord | None, now: Circumstances) -> bool:
    """Whether what ran before is of no use: the task was cleared, and is to run again or asks for something else."""
    return is_cleared(record, now.max_tries) and not (now.on_clear == "reuse" and now.same_job)


def _afresh(phase: JobPhase, *, can_cancel: bool) -> ResumeDecision:
    if phase is not JobPhase.ACTIVE:
        return ResumeDecision.SUBMIT
    return ResumeDecision.CANCEL_THEN_SUBMIT if can_cancel else ResumeDecision.FAIL


def keeps_token(record: JobRecord | None, now: Circumstances) -> bool:
    """Whether a submission is the same one sent again: its job may have been started, and nobody has seen an id of it."""
    return record is not None and now.external_id is None and not begins_afresh(record, now)


def next_record(
    record: JobRecord | None,
    phase: JobPhase,
    now: Circumstances,
    *,
    token: str,
    stored: JobId,
    identity: Mapping[str, str] | None,
) -> JobRecord:
    """Return the record to store before a submission. ``token`` is a new one, used unless the old one is kept."""
    if record is not None and keeps_token(record, now):
        return replace(record, max_tries=now.max_tries, identity=identity)
    lost_again = phase is JobPhase.GONE and now.external_id is not None and not is_cleared(record, now.max_tries)
    return JobRecord(
        token=token,
        attempt=1 if record is None else record.attempt + 1,
        max_tries=now.max_tries,
        identity=identity,
        previous=stored,
        resubmits=(0 if record is None else record.resubmits) + 1 if lost_again else 0,
    )
