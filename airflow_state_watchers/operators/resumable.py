"""A job that outlives its worker, found again by the next try."""

from __future__ import annotations

import inspect
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import BaseOperator
from airflow.sdk import ResumableJobMixin as UpstreamMixin

from airflow_state_watchers.core.resume import JobId, OnClear
from airflow_state_watchers.operators.job_run import JobRun
from airflow_state_watchers.operators.policies import Seconds, check_policies, policies_of
from airflow_state_watchers.operators.stopping import Stop, ToldToStop
from airflow_state_watchers.operators.waiting import JobClock, JobWait, RealClock

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.triggers.base import BaseTrigger


class ResumableJobMixin(UpstreamMixin):
    """One job, one result, whatever dies: for operators that start a job elsewhere and wait for it.

    Write it before the operator that it is mixed into, call :meth:`execute_resumable` from ``execute``, and give it
    ``submit_job``, ``get_job_status``, ``is_job_active`` and ``is_job_succeeded``, as for Airflow's own
    ``ResumableJobMixin``; ``get_job_result`` returns ``None`` unless you write one. What is stored under ``external_id_key``
    is the same too, so a deployed operator can change to this class and back while a task waits for its retry.

    Policies are class attributes. Durations are seconds or ``timedelta``.

    ``on_clear``
        ``"rerun"``: a cleared task starts a new job. ``"reuse"``: it takes up its old one, if :meth:`job_identity` is the same.
    ``cancel_on_kill``
        Cancel a job that nobody waits for any more, by :meth:`cancel_job`.
    ``max_resubmits``
        How often a job that is gone is submitted again.
    ``status_interval``
        Between two looks at the status.
    ``status_timeout``
        How long a try waits for the job; the job and its id stay.
    ``adopt_wait``
        How long a submitted job may take to be visible.
    ``wait``
        ``"reschedule"``: give the worker slot back between two looks.
    """

    on_clear: OnClear = "rerun"
    cancel_on_kill: bool = True
    max_resubmits: int = 1
    status_interval: Seconds = 30
    status_timeout: Seconds | None = None
    adopt_wait: Seconds = 60
    wait: Literal["poll", "reschedule"] = "poll"

    job_token: str
    """Our name for the job, there when ``submit_job`` is called: pass it on as idempotency token, tag or label."""

    _job_clock: JobClock = RealClock()
    _job_stop: Stop | None = None
    _job_wait: JobWait | None = None
    _job_woken: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        order = cls.__mro__
        if BaseOperator in order and order.index(BaseOperator) < order.index(ResumableJobMixin):
            raise TypeError(
                f"class {cls.__name__}: BaseOperator stands before ResumableJobMixin, so its on_kill and __init__ win. "
                f"Write class {cls.__name__}(ResumableJobMixin, ...)."
            )
        check_policies(cls)

    def execute_resumable(self, context: Context) -> Any:
        """Submit the job, or take up the one that an earlier try has started; wait for it and return its result.

        The first line that it logs begins with ``resumable: token=``.
        """
        store = context.get("task_state_store") if self.durable else None
        policies, stop = policies_of(self), Stop()
        goes_on = self._goes_on(context)
        if store is None:  # what leaves the worker could not find its job again
            policies = replace(policies, wait="poll")
        self._job_stop, self._job_wait = stop, JobWait(self, context, policies, stop, may_leave=store is not None)
        try:
            if store is None:
                return self._without_store(context)
            run = JobRun(self, context, policies, stop, self._job_wait, store, goes_on=goes_on)
            try:
                return run.result()
            except ToldToStop:
                run.cancel_if_over()
                raise
        finally:
            self._job_stop = self._job_wait = None

    def _goes_on(self, context: Context) -> bool:
        """Return whether this try has waited already, in a trigger or between two reschedules."""
        woken, self._job_woken = self._job_woken, False
        return woken or (self.wait == "reschedule" and context["ti"].get_first_reschedule_date(context) is not None)

    def _without_store(self, context: Context) -> Any:
        self.job_token = str(uuid.uuid4())
        self.log.info("resumable: token=%s, decision=SUBMIT, not durable", self.job_token)
        if self.durable:
            self.log.warning("there is no task state store in the context: the next try does not find this job")
        external_id = self.submit_job(context)
        self.on_job_attached(external_id, context)
        self.poll_until_complete(external_id, context)
        return self.get_job_result(external_id, context)

    def poll_until_complete(self, external_id: JobId, context: Context) -> None:
        """Wait for the job, a look each ``status_interval``. An operator with its own way of waiting may override it.

        :raises JobFailed: it has ended without success.
        :raises JobStatusTimeout: ``status_timeout`` has passed.
        """
        wait = self._job_wait
        if wait is None:
            raise RuntimeError("poll_until_complete is called by execute_resumable, and not outside of it")
        trigger = self.job_trigger(external_id, context) if wait.may_leave else None
        if trigger is not None:
            wait.defer(external_id, trigger)
        wait.until_succeeded(external_id)

    def get_job_result(self, external_id: JobId, context: Context) -> Any:
        """Return the result of a job that has succeeded."""
        return None

    def find_job(self, token: str, context: Context) -> JobId:
        """Return the id of the job that was submitted with ``token``, or ``None``. Optional."""
        raise NotImplementedError

    def cancel_job(self, external_id: JobId, context: Context) -> None:
        """Stop the job. Optional; without it no job is ever cancelled."""
        raise NotImplementedError

    def is_job_failed(self, status: str) -> bool:
        """Say whether a status means failure. Optional: without it whatever is neither active nor succeeded has failed.

        With it, a status in none of the three is unknown, and is waited for.
        """
        raise NotImplementedError

    def on_job_attached(self, external_id: JobId, context: Context) -> None:
        """Set links and XComs; called when this try has its job, submitted or found. Optional."""

    def job_trigger(self, external_id: JobId, context: Context) -> BaseTrigger | None:
        """Return a trigger to wait in, instead of in the worker. Its event only wakes the task, which asks for the status."""
        return None

    def job_identity(self, context: Context) -> Any:
        """Return what makes the request this request, as a mapping of JSON values; asked only with ``on_clear="reuse"``.

        Digests of it are stored, and no values. By default these are the constructor's arguments and the rendered template
        fields.
        """
        return {name: getattr(self, name) for name in _request_fields(type(self)) if hasattr(self, name)}

    def resume_job(self, context: Context, event: Any = None) -> Any:
        """Go on after the trigger of :meth:`job_trigger`, as a retry does; but a job that has failed is this try's failure."""
        self._job_woken = True
        return self.execute(context)  # type: ignore[attr-defined]

    def on_kill(self) -> None:
        """Leave the task. The job is cancelled only if the server says that this try is over (see the reference)."""
        if self._job_stop is not None:
            self._job_stop.tell()

    def _overrides(self, hook: str) -> bool:
        return getattr(type(self), hook) is not getattr(ResumableJobMixin, hook)


def _request_fields(cls: type) -> list[str]:
    """Return the names of what an operator is asked to do: of all constructors below Airflow's own base class."""
    names = set(getattr(cls, "template_fields", ()))
    for base in cls.__mro__:
        if base is not BaseOperator and not issubclass(BaseOperator, base) and "__init__" in vars(base):
            names |= set(inspect.signature(vars(base)["__init__"]).parameters)
    return sorted(names - {"self", "args", "kwargs", "durable"})
