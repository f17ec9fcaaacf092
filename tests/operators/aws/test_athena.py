"""Athena queries that are still running. The fake keeps request tokens as Athena does; moto ignores them."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.amazon.aws.triggers.athena import AthenaTrigger

from airflow_state_watchers import JobFailed, JobStatusTimeout, ResumableAthenaOperator
from airflow_state_watchers.operators.athena import CancellingAthenaTrigger
from airflow_state_watchers.testing import JobHarness
from tests.operators.aws.fake_aws import FakeAws


class Reusing(ResumableAthenaOperator):
    on_clear = "reuse"


class Rescheduled(ResumableAthenaOperator):
    wait = "reschedule"


def operator(cls: type[ResumableAthenaOperator] = ResumableAthenaOperator, **arguments: Any) -> ResumableAthenaOperator:
    request = {"query": "SELECT 1", "database": "lake", "output_location": "s3://lake/results/"}
    return cls(**{"task_id": "query", "aws_conn_id": "jobs", "retries": 2, **request, **arguments})


def harness(cls: type[ResumableAthenaOperator] = ResumableAthenaOperator, **arguments: Any) -> JobHarness:
    return JobHarness(operator(cls, **arguments))


@pytest.mark.parametrize("deferrable", [False, True])
def test_one_query_and_one_result_wherever_the_worker_dies(aws: FakeAws, deferrable: bool) -> None:
    first = harness(deferrable=deferrable)
    assert first.run() == "job-1"
    uninterrupted = dict(first.xcoms)
    for point in first.crash_points():
        aws.queries.clear()
        again = harness(deferrable=deferrable)
        again.run(crash_at=point)
        assert again.retry() == "job-1", point
        assert len(aws.queries) == 1, point
        assert again.xcoms == uninterrupted, point


def test_an_answer_that_is_lost_costs_no_second_query(aws: FakeAws) -> None:
    """botocore sends the query again, with the same token."""
    aws.lost_answers = 1
    assert harness().run() == "job-1"
    assert len(aws.queries) == 1


def test_the_token_is_new_after_a_failure_and_after_a_clear(aws: FakeAws) -> None:
    aws.ends_as = "FAILED"
    task = harness()
    with pytest.raises(JobFailed):
        task.run()
    aws.queries[0].status, aws.ends_as = "FAILED", "SUCCEEDED"
    assert task.retry() == "job-2"
    task.clear()
    assert task.run() == "job-3"
    assert len({query.request["ClientRequestToken"] for query in aws.queries}) == 3


def test_a_token_of_the_users_own_is_sent_as_it_is(aws: FakeAws) -> None:
    own = "x" * 32
    task = harness(client_request_token=own)
    assert task.run() == "job-1"
    task.clear()
    assert task.run() == "job-1", "Athena gives the query of this token again"
    assert [query.request["ClientRequestToken"] for query in aws.queries] == [own]


def test_the_operators_own_arguments_are_not_changed_by_a_run(aws: FakeAws) -> None:
    task = operator()
    JobHarness(task).run()
    assert (task.query_execution_context, task.result_configuration) == ({}, {})


def test_a_query_that_athena_has_forgotten_is_sent_again(aws: FakeAws) -> None:
    task = harness()
    task.run(crash_at="before get_job_status")
    aws.forgotten.add("job-1")
    assert task.retry() == "job-2"


def test_looks_that_are_denied_are_waited_out(aws: FakeAws) -> None:
    task = harness()
    task.run(crash_at="before get_job_status")
    aws.denied = 7
    assert task.retry() == "job-1"
    assert len(aws.queries) == 1


@pytest.mark.parametrize("looks", [0, 1, 2, 3, 4])
@pytest.mark.parametrize(
    ("cls", "arguments"),
    [(ResumableAthenaOperator, {}), (ResumableAthenaOperator, {"deferrable": True}), (Rescheduled, {})],
)
def test_a_failed_query_fails_the_try_with_athenas_reason(
    aws: FakeAws, cls: type[ResumableAthenaOperator], arguments: dict[str, Any], looks: int
) -> None:
    aws.looks_until_done, aws.ends_as = looks, "FAILED"
    with pytest.raises(JobFailed, match=r"'job-1'.*FAILED.*SYNTAX_ERROR"):
        harness(cls, **arguments).run()
    assert len(aws.queries) == 1


def test_a_clear_stops_the_query_that_still_runs(aws: FakeAws) -> None:
    task = harness()
    task.run(crash_at="before get_job_status")
    task.clear()
    assert task.run() == "job-2"
    assert aws.stopped == ["job-1"]


def test_with_reuse_a_clear_takes_the_query_up_if_it_is_the_same(aws: FakeAws) -> None:
    task = harness(Reusing)
    assert task.run() == "job-1"
    task._operator = operator(Reusing, sleep_time=5, log_query=False)
    task.clear()
    assert task.run() == "job-1"
    task._operator = operator(Reusing, query="SELECT 2")
    task.clear()
    assert task.run() == "job-2"


def test_the_wait_is_sleep_time_and_max_polling_attempts(aws: FakeAws) -> None:
    aws.looks_until_done = 10**6
    task = harness(sleep_time=7, max_polling_attempts=3)
    with pytest.raises(JobStatusTimeout, match="0:00:21"):
        task.run()
    assert task.clock.sleeps == [7, 7, 7]


def test_what_the_trigger_is_given(aws: FakeAws) -> None:
    task = operator(deferrable=True, sleep_time=7, max_polling_attempts=3, region_name="eu-west-1")
    trigger = task.job_trigger("job-1", {})
    assert isinstance(trigger, CancellingAthenaTrigger)
    path, serialized = trigger.serialize()
    assert path == "airflow_state_watchers.operators.athena.CancellingAthenaTrigger"
    assert CancellingAthenaTrigger(**serialized).serialize() == (path, serialized)
    upstream = AthenaTrigger("job-1", 7, 3, "jobs", region_name="eu-west-1")
    assert upstream.serialize()[1] == serialized
    assert type(operator(Reusing, deferrable=True).job_trigger("job-1", {})) is AthenaTrigger
    assert operator().job_trigger("job-1", {}) is None


async def test_a_stopped_deferred_task_stops_its_query(aws: FakeAws) -> None:
    trigger = operator(deferrable=True).job_trigger("job-1", {})
    assert trigger is not None
    await trigger.on_kill()
    assert aws.stopped == ["job-1"]
