"""Batch jobs that are still running, and what goes wrong around them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from airflow.providers.amazon.aws.triggers.batch import BatchJobTrigger

from airflow_state_watchers import JobFailed, JobGone, JobStatusTimeout, ResumableBatchOperator
from airflow_state_watchers.operators.batch import CancellingBatchJobTrigger
from airflow_state_watchers.testing import JobHarness
from tests.operators.aws.fake_aws import FakeAws

REQUEST: dict[str, Any] = {"job_name": "sums", "job_queue": "queue", "job_definition": "sums"}


class Reusing(ResumableBatchOperator):
    on_clear = "reuse"


class Rescheduled(ResumableBatchOperator):
    wait = "reschedule"


def operator(cls: type[ResumableBatchOperator] = ResumableBatchOperator, **arguments: Any) -> ResumableBatchOperator:
    return cls(**{"task_id": "job", "aws_conn_id": "jobs", "retries": 2, **REQUEST, **arguments})


def harness(cls: type[ResumableBatchOperator] = ResumableBatchOperator, **arguments: Any) -> JobHarness:
    return JobHarness(operator(cls, **arguments))


@pytest.mark.parametrize("deferrable", [False, True])
def test_one_job_and_one_result_wherever_the_worker_dies(aws: FakeAws, deferrable: bool) -> None:
    first = harness(deferrable=deferrable)
    assert first.run() == "job-1"
    uninterrupted = dict(first.xcoms)
    for point in first.crash_points():
        aws.jobs.clear()
        again = harness(deferrable=deferrable)
        again.run(crash_at=point)
        assert again.retry() == "job-1", point
        assert len(aws.jobs) == 1, point
        assert again.xcoms == uninterrupted, point


@pytest.mark.parametrize("failure", ["lost_answers", "broken_answers"])
def test_a_submission_whose_answer_is_lost_is_not_sent_again_but_looked_for(aws: FakeAws, failure: str) -> None:
    """botocore by itself sends it up to five times, and each time a job starts."""
    setattr(aws, failure, 1)
    task = harness()
    with pytest.raises(Exception, match=r"Connection was closed|an internal error"):
        task.run()
    assert len(aws.jobs) == 1
    assert task.retry() == "job-1"
    assert len(aws.jobs) == 1


def test_the_job_is_found_among_many_of_its_name(aws: FakeAws) -> None:
    aws.page = 2
    task = harness()
    task.run(crash_at="after submit_job")
    for _ in range(5):
        harness().run()
    assert len(aws.jobs) == 6
    aws.lists = 0
    assert task.retry() == "job-1"
    assert (len(aws.jobs), aws.lists) == (6, 3)


@pytest.mark.parametrize(("hidden", "jobs"), [(3, 1), (100, 2)])
def test_a_listing_that_lags_is_waited_for_as_long_as_adopt_wait(aws: FakeAws, hidden: int, jobs: int) -> None:
    task = harness()
    task.run(crash_at="after submit_job")
    aws.hidden_lists = hidden
    assert task.retry() == f"job-{jobs}"
    assert len(aws.jobs) == jobs


def test_looks_that_are_denied_are_waited_out(aws: FakeAws) -> None:
    task = harness()
    task.run(crash_at="before get_job_status")
    aws.denied = 7
    assert task.retry() == "job-1"
    assert len(aws.jobs) == 1


def test_a_job_that_batch_has_forgotten_is_submitted_again_once(aws: FakeAws) -> None:
    task = harness()
    task.run(crash_at="before get_job_status")
    aws.forgotten |= {"job-1", "job-2"}
    with pytest.raises(JobGone, match="AWS Batch has no job job-2"):
        task.retry()
    assert len(aws.jobs) == 2


@pytest.mark.parametrize("looks", [0, 1, 2, 3, 4])
@pytest.mark.parametrize(
    ("cls", "arguments"),
    [(ResumableBatchOperator, {}), (ResumableBatchOperator, {"deferrable": True}), (Rescheduled, {})],
)
def test_a_failed_job_fails_the_try_and_the_next_one_starts_another(
    aws: FakeAws, cls: type[ResumableBatchOperator], arguments: dict[str, Any], looks: int
) -> None:
    """Also if it fails while its task waits elsewhere: upstream's trigger then gives an event like any other."""
    aws.looks_until_done, aws.ends_as = looks, "FAILED"
    task = harness(cls, **arguments)
    with pytest.raises(JobFailed, match=r"'job-1'.*FAILED.*Essential container in task exited"):
        task.run()
    assert len(aws.jobs) == 1
    assert "cloudwatch_events" in task.xcoms
    aws.jobs[0].status, aws.ends_as = "FAILED", "SUCCEEDED"
    assert task.retry() == "job-2"


def test_a_clear_terminates_the_job_that_still_runs(aws: FakeAws) -> None:
    task = harness()
    task.run(crash_at="before get_job_status")
    task.clear()
    assert task.run() == "job-2"
    assert aws.stopped == ["job-1"]


def test_with_reuse_a_clear_takes_the_job_up_if_it_is_the_same_request(aws: FakeAws) -> None:
    task = harness(Reusing)
    assert task.run() == "job-1"
    task.clear()
    assert task.run() == "job-1"
    task._operator = operator(Reusing, poll_interval=5, awslogs_fetch_interval=timedelta(seconds=9))
    task.clear()
    assert task.run() == "job-1"
    task._operator = operator(Reusing, parameters={"day": "2026-12-01"})
    task.clear()
    assert task.run() == "job-2"


def test_the_wait_is_poll_interval_and_max_retries(aws: FakeAws) -> None:
    aws.looks_until_done = 10**6
    task = harness(poll_interval=7, max_retries=3)
    with pytest.raises(JobStatusTimeout, match="0:00:21"):
        task.run()
    assert task.clock.sleeps == [7, 7, 7]
    aws.looks_until_done = 0
    assert task.retry() == "job-1"


def test_what_the_trigger_is_given(aws: FakeAws) -> None:
    task = operator(deferrable=True, poll_interval=7, max_retries=3, region_name="eu-west-1", verify=False)
    task.botocore_config = {"read_timeout": 9}
    trigger = task.job_trigger("job-1", {})
    assert isinstance(trigger, CancellingBatchJobTrigger)
    path, serialized = trigger.serialize()
    assert path == "airflow_state_watchers.operators.batch.CancellingBatchJobTrigger"
    assert CancellingBatchJobTrigger(**serialized).serialize() == (path, serialized)
    upstream = BatchJobTrigger(
        job_id="job-1",
        waiter_max_attempts=3,
        waiter_delay=7,
        aws_conn_id="jobs",
        region_name="eu-west-1",
        verify=False,
        botocore_config={"read_timeout": 9},
    )
    assert upstream.serialize()[1] == serialized
    assert type(operator(Reusing, deferrable=True).job_trigger("job-1", {})) is BatchJobTrigger
    assert operator().job_trigger("job-1", {}) is None


async def test_a_stopped_deferred_task_terminates_its_job(aws: FakeAws) -> None:
    trigger = operator(deferrable=True).job_trigger("job-1", {})
    assert trigger is not None
    await trigger.on_kill()
    assert aws.stopped == ["job-1"]


def test_waiters_and_logs_are_upstreams_affair(aws: FakeAws) -> None:
    class Waiters:
        def wait_for_job(self, job_id: str, **arguments: Any) -> None:
            aws.jobs[0].status = "SUCCEEDED"
            waited.append((job_id, sorted(arguments)))

    waited: list[tuple[str, list[str]]] = []
    assert harness(waiters=Waiters(), awslogs_enabled=True).run() == "job-1"
    assert waited == [("job-1", ["get_batch_log_fetcher"])]


def test_it_can_be_mapped(aws: FakeAws) -> None:
    from airflow.sdk import DAG

    with DAG("mapped"):
        mapped = ResumableBatchOperator.partial(task_id="job", durable=True, **REQUEST).expand(
            parameters=[{"day": "1"}, {"day": "2"}]
        )
    assert mapped.operator_class is ResumableBatchOperator
