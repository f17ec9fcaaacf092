"""One try of a resumable task: look at what stands, decide, do it; until the job's result is there."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_state_watchers.core.resume import (
    Circumstances,
    JobId,
    JobPhase,
    JobRecord,
    ResumeDecision,
    id_of,
    is_cleared,
    keeps_token,
    next_record,
    resolve_reconnect,
    same_id,
)
from airflow_state_watchers.core.resume_codec import digests_of, drifted
from airflow_state_watchers.exceptions import JobError, JobFailed, JobGone
from airflow_state_watchers.operators.job_state import JobState
from airflow_state_watchers.operators.policies import Policies
from airflow_state_watchers.operators.stopping import Stop, is_over
from airflow_state_watchers.operators.telemetry import Telemetry
from airflow_state_watchers.operators.waiting import JobWait, Look

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_state_watchers.operators.resumable import ResumableJobMixin


NOTHING = Look(JobPhase.GONE, "nothing is stored of a job")


@dataclass(frozen=True, slots=True)
class Standing:
    """What a try has found, and what it does about it."""

    record: JobRecord | None
    stored: JobId
    external_id: JobId
    look: Look
    now: Circumstances
    decision: ResumeDecision
    token: str
    identity: Mapping[str, str] | None
    changed: list[str]
    """Fields of the request that are not what they were when the job was submitted."""


class JobRun:
    def __init__(
        self,
        operator: ResumableJobMixin,
        context: Context,
        policies: Policies,
        stop: Stop,
        wait: JobWait,
        store: Any,
        *,
        goes_on: bool = False,
    ) -> None:
        self._operator = operator
        self._context = context
        self._policies = policies
        self._stop = stop
        self._ti = context["ti"]
        self._state = JobState(store, operator.external_id_key)
        self._wait = wait
        self._telemetry = Telemetry(operator, self._ti)
        self._external_id: JobId = None
        self._first = True
        self._has_job = goes_on
        self._submits = 0

    def result(self) -> Any:
        """Return the job's result, whichever try has started it."""
        while True:
            standing = self._decide()
            self._say_if_nothing_will_come()
            decision = standing.decision
            if decision is ResumeDecision.SUBMIT:
                self._check_another(standing)
            if decision is ResumeDecision.FAIL:
                raise self._refusal(standing)
            if decision is ResumeDecision.WAIT:
                self._wait.pause(standing.external_id, standing.look)
                continue
            if decision is ResumeDecision.ADOPT:
                assert standing.record is not None
                self._state.remember(standing.record, standing.external_id)
                continue
            self._take_up(standing)
            self._has_job = True
            if decision is not ResumeDecision.COLLECT and not self._ended_well():
                continue
            return self._operator.get_job_result(self._external_id, self._context)

    def _check_another(self, standing: Standing) -> None:
        """Raise rather than submit another job where a try would do so without the retries, and without end."""
        job = f"job {standing.external_id!r}"
        cleared = is_cleared(standing.record, standing.now.max_tries)
        if self._has_job and standing.look.phase is JobPhase.FAILED and not cleared:  # it is this try's
            raise JobFailed(f"{job}: it has ended with {standing.look.why}")
        if self._submits > self._policies.max_resubmits:
            raise JobGone(
                f"{job}: this try has submitted {self._submits} jobs, and none can be found ({standing.look.why})"
            )

    def _say_if_nothing_will_come(self) -> None:
        """Say, once, that without retries nobody comes for the job."""
        if self._first and not self._operator.retries:  # type: ignore[attr-defined]
            self._operator.log.warning(
                "this task has retries=0: if its worker dies, nothing comes for its job until someone clears the task. "
                "Set retries to 1 or more."
            )
        self._first = False

    def _ended_well(self) -> bool:
        """Wait for the job. Returns ``False`` if it was said to be gone, which is then looked into."""
        try:
            self._operator.poll_until_complete(self._external_id, self._context)
        except JobGone as gone:
            self._operator.log.warning("%s", gone)
            return False
        return True

    def _decide(self) -> Standing:
        with self._telemetry.span() as span:
            standing = self._standing()
            look = standing.look
            self._operator.log.info(
                "resumable: token=%s, decision=%s, job=%r (%s)",
                standing.token,
                standing.decision.name,
                standing.external_id,
                look.why,
            )
            self._telemetry.decided(
                span, standing.decision, external_id=standing.external_id, phase=look.phase, status=look.status
            )
        if standing.changed:
            self._say_what_changed(standing)
        if standing.external_id is not None:
            self._external_id = standing.external_id  # the one to cancel, if we are told to stop now
        return standing

    def _standing(self) -> Standing:
        record, stored = self._state.load()
        external_id = id_of(record, stored)
        known = external_id is not None
        if known:
            look = self._wait.settled(external_id)
        elif record is None:
            look = NOTHING
        else:
            look, external_id = self._wait.search(record.token)
        identity = self._identity()
        changed = drifted(None if record is None else record.identity, identity)
        now = Circumstances(
            external_id=external_id if known else None,
            found=not known and external_id is not None,
            max_tries=self._ti.max_tries,
            on_clear=self._policies.on_clear,
            same_job=not changed,
            can_cancel=self._policies.cancel_on_kill and self._operator._overrides("cancel_job"),
            max_resubmits=self._policies.max_resubmits,
        )
        decision = resolve_reconnect(record, look.phase, now)
        token = self._token(record, now, decision, is_record_of_job=not known or _is_of(record, external_id))
        return Standing(record, stored, external_id, look, now, decision, token, identity, changed)

    def _token(
        self, record: JobRecord | None, now: Circumstances, decision: ResumeDecision, *, is_record_of_job: bool
    ) -> str:
        submits = decision in (ResumeDecision.SUBMIT, ResumeDecision.CANCEL_THEN_SUBMIT)
        if record is None or (submits and not keeps_token(record, now)) or not is_record_of_job:
            return str(uuid.uuid4())
        return record.token

    def _identity(self) -> Mapping[str, str] | None:
        if self._policies.on_clear != "reuse":
            return None
        return digests_of(self._operator.job_identity(self._context))

    def _say_what_changed(self, standing: Standing) -> None:
        cleared = is_cleared(standing.record, self._ti.max_tries)
        effect = "so its job is not used again" if cleared else "which a retry does not mind"
        self._operator.log.info("the request has changed in %s, %s", ", ".join(standing.changed), effect)

    def _take_up(self, standing: Standing) -> None:
        """Have the job that this try waits for or collects, its id stored, and say so to the operator."""
        if standing.decision in (ResumeDecision.REATTACH, ResumeDecision.COLLECT):
            self._hold_on_to(standing)
        else:
            if standing.decision is ResumeDecision.CANCEL_THEN_SUBMIT:
                self._cancel(standing.external_id)
                self._wait.until_ended(standing.external_id)
            self._submit(standing)
        self._operator.on_job_attached(self._external_id, self._context)

    def _hold_on_to(self, standing: Standing) -> None:
        record = standing.record or JobRecord(token=standing.token, max_tries=standing.now.max_tries)
        wanted = replace(
            record, token=standing.token, max_tries=standing.now.max_tries, external_id=standing.external_id
        )
        self._external_id = standing.external_id
        self._operator.job_token = wanted.token
        if wanted != standing.record or not same_id(standing.stored, standing.external_id):
            self._state.remember(wanted, standing.external_id)

    def _submit(self, standing: Standing) -> None:
        record = next_record(
            standing.record,
            standing.look.phase,
            standing.now,
            token=standing.token,
            stored=standing.stored,
            identity=standing.identity,
        )
        self._operator.job_token = record.token
        self._submits += 1
        with self._stop.held():
            self._state.intend(record)
            self._external_id = self._operator.submit_job(self._context)
            self._operator.log.info("job %r was submitted with token %s", self._external_id, record.token)
            if self._external_id is None:
                self._operator.log.warning("submit_job returned no id: the next try cannot find this job by its id")
            else:
                self._state.remember(record, self._external_id)

    def _cancel(self, external_id: JobId) -> None:
        self._operator.log.warning("cancelling job %r", external_id)
        self._operator.cancel_job(external_id, self._context)

    def _refusal(self, standing: Standing) -> JobError:
        job, name = standing.external_id, type(self._operator).__name__
        if standing.look.phase is JobPhase.GONE:
            return JobGone(
                f"job {job!r}: {standing.look.why}, and max_resubmits={self._policies.max_resubmits} jobs were submitted "
                f"again already. Clear the task to begin anew, or raise max_resubmits."
            )
        why = "cancel_on_kill is False" if self._operator._overrides("cancel_job") else f"{name} has no cancel_job"
        return JobError(
            f"job {job!r} of before the clear still runs ({standing.look.why}) and is not cancelled, because {why}. "
            f"Stop it and clear the task again, or set on_clear='reuse' to wait for it."
        )

    def cancel_if_over(self) -> None:
        """After being told to stop: cancel the job if the server says that nobody will come for it."""
        job = self._external_id
        over = is_over(self._ti, on_clear=self._policies.on_clear)
        if job is None:
            return
        if not over:
            why = "the server did not say whether this try is over" if over is None else "a later try goes on with it"
            self._operator.log.info("told to stop; job %r is left running: %s", job, why)
        elif not self._policies.cancel_on_kill or not self._operator._overrides("cancel_job"):
            self._operator.log.warning("told to stop; job %r is left running: it is not to be cancelled", job)
        else:
            self._cancel(job)


def _is_of(record: JobRecord | None, external_id: JobId) -> bool:
    """Whether a record tells of this job. Upstream's class may have started another one since; its token is not known."""
    return record is None or record.external_id is None or same_id(record.external_id, external_id)
