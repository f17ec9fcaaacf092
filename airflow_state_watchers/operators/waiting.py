"""Looking at a job, and waiting for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar

from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSkipException,
    TaskDeferred,
)

from airflow_state_watchers.core.resume import JobId, JobPhase
from airflow_state_watchers.exceptions import JobError, JobFailed, JobGone, JobStatusTimeout

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.triggers.base import BaseTrigger

    from airflow_state_watchers.operators.policies import Policies
    from airflow_state_watchers.operators.resumable import ResumableJobMixin
    from airflow_state_watchers.operators.stopping import Stop

T = TypeVar("T")

SHORT_PAUSE = 5.0
"""Seconds between two looks for what may not be visible yet."""
LEAST_PAUSE = 0.05
MISTAKES = (AttributeError, ImportError, NameError, NotImplementedError, SyntaxError, TypeError)
"""Errors of a look-up that no waiting mends."""
MEANT = (AirflowFailException, AirflowRescheduleException, AirflowSkipException, JobError)
"""Errors by which an operator tells Airflow or us what to do."""


class JobClock(Protocol):
    def now(self) -> float:
        """Return seconds from any fixed moment."""

    def sleep(self, seconds: float) -> None: ...


class RealClock:
    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at a job has shown; ``why`` tells a person what it rests on."""

    phase: JobPhase
    why: str
    status: str | None = None


class JobWait:
    """The looks at a task's job, and the pauses between them."""

    def __init__(
        self, operator: ResumableJobMixin, context: Context, policies: Policies, stop: Stop, *, may_leave: bool
    ) -> None:
        self.may_leave = may_leave
        self._operator = operator
        self._context = context
        self._policies = policies
        self._stop = stop
        self._clock = operator._job_clock
        self._began = self._clock.now()
        self._unknown = 0

    def look(self, external_id: JobId) -> Look:
        """Ask the operator for the job's status."""
        try:
            status = self._operator.get_job_status(external_id, self._context)
        except JobGone as gone:
            return Look(JobPhase.GONE, str(gone) or "the service knows it no more")
        except (*MISTAKES, *MEANT):
            raise
        except Exception as error:
            return Look(JobPhase.UNKNOWN, f"its status cannot be looked up: {type(error).__name__}: {error}")
        if status is None:  # what a missing field of an answer comes to; to upstream's rule it would be a failure
            return Look(JobPhase.UNKNOWN, "get_job_status returned None")
        return Look(*self._read(status), status)

    def _read(self, status: str) -> tuple[JobPhase, str]:
        operator = self._operator
        told = f"status {status!r}"
        if operator.is_job_active(status):
            return JobPhase.ACTIVE, told
        if operator.is_job_succeeded(status):
            return JobPhase.SUCCEEDED, told
        if not operator._overrides("is_job_failed") or operator.is_job_failed(status):
            return JobPhase.FAILED, told
        name = type(operator).__name__
        return (
            JobPhase.UNKNOWN,
            f"{told} is neither active, succeeded nor failed for {name}; add it to one of the three",
        )

    def settled(self, external_id: JobId) -> Look:
        """Look, and believe that a job is gone only when it is said for ``adopt_wait``: a new job may not be visible yet."""
        return self._while(lambda: self.look(external_id), lambda look: look.phase is JobPhase.GONE)

    def search(self, token: str) -> tuple[Look, JobId]:
        """Look for a job by its token, for ``adopt_wait``."""
        if not self._operator._overrides("find_job"):
            return Look(JobPhase.GONE, "without find_job no job can be found by its token"), None
        return self._while(lambda: self._find(token), lambda found: found[0].phase is JobPhase.GONE)

    def _find(self, token: str) -> tuple[Look, JobId]:
        try:
            found = self._operator.find_job(token, self._context)
        except (*MISTAKES, *MEANT):
            raise
        except Exception as error:
            return Look(JobPhase.UNKNOWN, f"find_job failed: {type(error).__name__}: {error}"), None
        if found is None:
            return Look(JobPhase.GONE, "no job has this token"), None
        return Look(JobPhase.ACTIVE, "found by its token"), found

    def _while(self, ask: Callable[[], T], unsure: Callable[[T], bool]) -> T:
        until = self._clock.now() + self._policies.adopt_wait
        while unsure(answer := ask()) and (left := until - self._clock.now()) > 0:
            self._sleep(min(self._policies.status_interval, SHORT_PAUSE, left))
        return answer

    def until_succeeded(self, external_id: JobId) -> None:
        """Wait for the job. Raises :class:`JobFailed`, :class:`JobGone` or :class:`JobStatusTimeout`."""
        while True:
            look = self.look(external_id)
            if look.phase is JobPhase.SUCCEEDED:
                return
            if look.phase is JobPhase.FAILED:
                raise JobFailed(f"job {external_id!r}: it has ended with {look.why}")
            if look.phase is JobPhase.GONE:
                raise JobGone(f"job {external_id!r}: {look.why}")
            self.pause(external_id, look)

    def defer(self, external_id: JobId, trigger: BaseTrigger) -> None:
        """Wait in a trigger while the job runs. Returns only if a look shows that there is nothing to wait for."""
        look = self.look(external_id)
        if look.phase is JobPhase.ACTIVE:
            self._stop.check()
            raise TaskDeferred(trigger=trigger, method_name="resume_job", timeout=self._policies.status_timeout)

    def until_ended(self, external_id: JobId) -> None:
        """Wait until a job that was cancelled no longer runs."""
        while (look := self.look(external_id)).phase in (JobPhase.ACTIVE, JobPhase.UNKNOWN):
            self.pause(external_id, look)

    def pause(self, external_id: JobId, look: Look) -> None:
        """Wait for one ``status_interval``; with ``wait="reschedule"`` by leaving, and coming back."""
        self._say(external_id, look)
        timeout, interval = self._policies.status_timeout, self._policies.status_interval
        if timeout is not None and self._waited() >= timeout:
            raise JobStatusTimeout(
                f"job {external_id!r}: not ended after status_timeout={timedelta(seconds=timeout)} ({look.why}). "
                f"It was not cancelled, and the next try waits for it again."
            )
        if self._policies.wait == "reschedule":
            self._reschedule(interval)
        self._sleep(interval)

    def _say(self, external_id: JobId, look: Look) -> None:
        if look.phase is not JobPhase.UNKNOWN:
            self._unknown = 0
            return
        self._unknown += 1
        job = "the job" if external_id is None else f"job {external_id!r}"
        self._operator.log.warning(
            "%s: %s. Waiting, not resubmitting (look %d in a row).", job, look.why.rstrip("."), self._unknown
        )

    def _waited(self) -> float:
        """Return the seconds since this try began, over all its reschedules."""
        if self._policies.wait == "reschedule":
            first = self._context["ti"].get_first_reschedule_date(self._context)
            if first is not None:
                return (datetime.now(timezone.utc) - first).total_seconds()
        return self._clock.now() - self._began

    def _reschedule(self, seconds: float) -> NoReturn:
        self._stop.check()
        date = datetime.now(timezone.utc) + timedelta(seconds=max(seconds, LEAST_PAUSE))
        raise AirflowRescheduleException(date)  # type: ignore[no-untyped-call]

    def _sleep(self, seconds: float) -> None:
        self._stop.check()
        self._clock.sleep(max(seconds, LEAST_PAUSE))
