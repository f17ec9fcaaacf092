"""What a hostile tester found in resumable jobs. What is not mended yet is marked, and must fail as it is told."""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import Any

import pytest
from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import BaseOperator

from airflow_state_watchers import JobError, JobFailed, JobGone, JobStatusTimeout, ResumableJobMixin
from airflow_state_watchers.core.resume_codec import digests_of
from airflow_state_watchers.operators.stopping import ToldToStop
from airflow_state_watchers.testing import JobHarness
from tests.operators.job_service import JobService
from tests.operators.reports import FullReport, TokenReport, UpstreamReport


class TooMany(BaseException):
    """The test has seen enough."""


class Jobs(ResumableJobMixin, BaseOperator):
    """A service in memory. ``says`` is what the looks at each job say, in order, the last one for ever."""

    says: Any = ("RUNNING", "DONE")
    name: Any = None

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.looks: dict[Any, int] = {}
        self.submitted: list[Any] = []
        self.cancelled: list[Any] = []

    def execute(self, context: Any) -> Any:
        return self.execute_resumable(context)

    def submit_job(self, context: Any) -> Any:
        if len(self.submitted) >= 20:
            raise TooMany
        self.submitted.append(self.job_token)
        return self.name or f"job-{len(self.submitted)}"

    def get_job_status(self, external_id: Any, context: Any) -> str:
        look = self.looks[external_id] = self.looks.get(external_id, 0) + 1
        said = "CANCELLED" if external_id in self.cancelled else self.says[min(look, len(self.says)) - 1]
        if isinstance(said, BaseException):
            raise said
        return str(said)

    def is_job_active(self, status: str) -> bool:
        return status in ("RUNNING", "STOPPING")

    def is_job_succeeded(self, status: str) -> bool:
        return status == "DONE"

    def get_job_result(self, external_id: Any, context: Any) -> Any:
        return external_id


# A clear


class SlowToStop(Jobs):
    """Its jobs stop some looks after they were told to."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stopping = ["STOPPING"] * 3

    def cancel_job(self, external_id: Any, context: Any) -> None:
        self.cancelled.append(external_id)

    def get_job_status(self, external_id: Any, context: Any) -> str:
        if external_id in self.cancelled and self.stopping:
            return self.stopping.pop()
        return super().get_job_status(external_id, context)


def test_a_clear_with_reschedule_submits_once_the_old_job_has_stopped() -> None:
    """As it does with ``poll``."""
    operator = SlowToStop(task_id="job", retries=0)
    operator.wait = "reschedule"
    harness = JobHarness(operator)
    harness.run(crash_at="after on_job_attached")
    harness.clear()
    assert harness.run() == "job-2"
    assert set(operator.cancelled) == {"job-1"}


@pytest.mark.xfail(strict=True, reason="told by max_tries alone, which can be the same once retries were lowered")
def test_a_clear_after_retries_were_lowered_runs_again(service: JobService) -> None:
    """Airflow: ``ti.max_tries = ti.try_number + task.retries``, by the DAG as it is now: 2 + 1 is 3 again."""
    before = JobHarness(TokenReport(task_id="report", report="sales", address=service.address, retries=3))
    before.run(crash_at="after on_job_attached")
    before.retry()
    deployed = JobHarness(TokenReport(task_id="report", report="sales", address=service.address, retries=1))
    deployed.store, deployed.try_number = before.store, before.try_number
    deployed.clear()
    assert deployed.max_tries == before.max_tries == 3
    deployed.run()
    assert [job.id for job in service.jobs] == ["job-1", "job-2"]


@pytest.mark.xfail(strict=True, reason="the record's max_tries is compared though the job is another one")
def test_a_job_that_upstreams_class_started_after_the_clear_is_taken_up(service: JobService) -> None:
    ours = JobHarness(FullReport(task_id="report", report="sales", address=service.address, retries=2))
    ours.run()
    ours.clear()
    service.jobs[0].status = "FAILED"  # or its upstream would collect it
    theirs = JobHarness(UpstreamReport(task_id="report", report="sales", address=service.address, retries=2))
    theirs.store = ours.store
    theirs.run(crash_at="before poll_until_complete")
    assert [job.id for job in service.jobs] == ["job-1", "job-2"]
    ours.retry()
    assert (service.cancelled, [job.id for job in service.jobs]) == ([], ["job-1", "job-2"])


@pytest.mark.xfail(strict=True, reason="the message is that of a job that was left")
def test_a_wait_for_a_cancelled_job_does_not_say_that_it_was_not_cancelled(service: JobService) -> None:
    operator = FullReport(task_id="report", report="sales", address=service.address, retries=2)
    operator.status_timeout, service.behaviour.looks_until_done = 60, 10**6
    harness = JobHarness(operator)
    harness.run(crash_at="after on_job_attached")
    harness.clear()
    service.behaviour.refuses_to_stop = True
    with pytest.raises(JobStatusTimeout) as told:
        harness.run()
    assert service.cancelled == ["job-1"]
    assert "It was not cancelled" not in str(told.value)


# Submissions


def test_a_failure_after_a_moment_of_absence_is_this_trys_and_submits_nothing() -> None:
    """As where a service moves a job that has ended from one table to another."""
    operator = Jobs(task_id="job", retries=0)
    operator.says = ("RUNNING", JobGone("404"), "FAILED")
    with pytest.raises(JobFailed):
        JobHarness(operator).run()
    assert len(operator.submitted) == 1


def test_a_job_without_an_id_that_is_gone_is_not_submitted_without_end() -> None:
    class Nameless(Jobs):
        def submit_job(self, context: Any) -> Any:
            super().submit_job(context)
            return None

    operator = Nameless(task_id="job", retries=0)
    operator.says = (JobGone("404"),)
    with pytest.raises(JobError):
        JobHarness(operator).run()
    assert len(operator.submitted) <= 1 + operator.max_resubmits


@pytest.mark.xfail(strict=True, reason="the stored id is taken for that of the attempt before")
def test_an_id_that_is_the_same_for_every_job_is_found_once_it_is_stored() -> None:
    """Documented: without tokens and a search the window ends with the first ``store.set`` after the submission."""
    operator = Jobs(task_id="job", retries=3)
    operator.name, operator.says = "nightly", ("FAILED",)
    harness = JobHarness(operator)
    with pytest.raises(JobFailed):
        harness.run()
    operator.says = ("FAILED", "RUNNING", "RUNNING", "DONE")
    operator.looks.clear()
    harness.run(crash_at="after store.set(remote_job_id)")
    assert len(operator.submitted) == 2
    harness.retry()
    assert len(operator.submitted) == 2


# Waiting


class Woken(Jobs):
    def job_trigger(self, external_id: Any, context: Any) -> Any:
        return TimeDeltaTrigger(timedelta(seconds=60))


@pytest.mark.xfail(strict=True, reason="status_timeout begins with each deferral")
def test_a_trigger_that_only_wakes_does_not_begin_status_timeout_anew() -> None:
    operator = Woken(task_id="job", retries=1)
    operator.says, operator.status_timeout = ("RUNNING",), 3600
    harness = JobHarness(operator)
    harness.clock.sleep(360 * 86400)
    with pytest.raises(JobStatusTimeout):
        harness.run()


# Told to stop


@pytest.mark.xfail(strict=True, reason="nothing is cancelled before an id is known")
def test_a_kill_during_the_search_cancels_the_job_that_is_found(service: JobService) -> None:
    class Killed(FullReport):
        def find_job(self, token: str, context: Any) -> Any:
            found = super().find_job(token, context)
            self.on_kill()
            return found

    harness = JobHarness(Killed(task_id="report", report="sales", address=service.address, retries=2))
    harness.run(crash_at="after submit_job")
    harness.server_state = "failed"
    with pytest.raises(ToldToStop):
        harness.retry()
    assert service.cancelled == ["job-1"]


@pytest.mark.xfail(strict=True, reason="a second signal breaks off the cancelling")
def test_a_second_kill_does_not_break_off_the_cancelling(service: JobService) -> None:
    class Killed(FullReport):
        def get_job_status(self, external_id: Any, context: Any) -> str:
            self.on_kill()
            return super().get_job_status(external_id, context)

        def cancel_job(self, external_id: Any, context: Any) -> None:
            self.on_kill()
            super().cancel_job(external_id, context)

    harness = JobHarness(Killed(task_id="report", report="sales", address=service.address, retries=2))
    harness.server_state = "failed"
    with pytest.raises(ToldToStop):
        harness.run()
    assert service.cancelled == ["job-1"]


def _in_comms(call: Any) -> None:
    """Call it as a signal handler would that came while the task asks the supervisor."""
    code = compile("call()", "comms", "exec")
    exec(code, {"__name__": "airflow.sdk.execution_time.comms", "call": call})  # noqa: S102


@pytest.mark.parametrize("way", ["deferred", "rescheduled"])
def test_a_kill_during_a_request_to_the_supervisor_is_not_forgotten_by_leaving(way: str) -> None:
    class Killed(Woken if way == "deferred" else Jobs):  # type: ignore[misc]
        def on_job_attached(self, external_id: Any, context: Any) -> None:
            if not self.looks.get(external_id):
                _in_comms(self.on_kill)  # while it pushes an XCom

        def cancel_job(self, external_id: Any, context: Any) -> None:
            self.cancelled.append(external_id)

    operator = Killed(task_id="job", retries=1)
    operator.wait = "poll" if way == "deferred" else "reschedule"
    harness = JobHarness(operator)
    harness.server_state = "failed"
    with pytest.raises(ToldToStop):
        harness.run()
    assert operator.cancelled == ["job-1"]


# What is stored and told by its text


@pytest.mark.xfail(strict=True, reason="its digest has an address of memory in it")
def test_a_partial_is_told_by_what_it_calls_and_not_by_where_that_lies() -> None:
    def process() -> Any:
        """The same DAG file in another process: the same function elsewhere in memory."""

        def transform(row: Any) -> Any:
            return row

        return functools.partial(transform, 1)

    one, other = process(), process()
    assert digests_of({"transform": one}) == digests_of({"transform": other})
