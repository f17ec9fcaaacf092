"""The harness, as a user's own tests meet it."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import BaseOperator

from airflow_state_watchers import StateWatcherError
from airflow_state_watchers.testing import JobHarness
from tests.operators.job_service import TELLS, JobClient, JobService
from tests.operators.reports import TokenReport, UpstreamReport


@pytest.fixture
def harness(service: JobService) -> JobHarness:
    return JobHarness(TokenReport(task_id="report", report="sales", address=service.address, retries=2))


def test_the_points_are_those_of_the_last_try_in_order(harness: JobHarness) -> None:
    harness.run()
    points = harness.crash_points()
    assert points[:2] == ["before store.get(remote_job_id.resume)", "after store.get(remote_job_id.resume)"]
    assert points[-1] == "after get_job_result"
    assert points.index("after store.set(remote_job_id.resume)") < points.index("before submit_job")
    assert "after store.set(remote_job_id.resume) #2" in points
    assert len(set(points)) == len(points)
    harness.run(crash_at="before get_job_status")
    assert harness.crash_points()[-1] == "before get_job_status"


def test_a_dead_process_does_nothing_more(harness: JobHarness, service: JobService) -> None:
    assert harness.run(crash_at="before submit_job") is None
    assert service.jobs == []
    assert set(harness.store.values) == {"remote_job_id.resume"}
    assert harness.xcoms == {}


def test_a_point_that_is_not_reached_is_an_error(harness: JobHarness) -> None:
    with pytest.raises(StateWatcherError, match=r"has not come to 'after submitjob'.*after submit_job"):
        harness.run(crash_at="after submitjob")


def test_there_is_nothing_to_retry_at_first(harness: JobHarness) -> None:
    with pytest.raises(StateWatcherError, match=r"call run\(\) first"):
        harness.retry()


def test_a_clear_moves_max_tries_as_airflow_does(harness: JobHarness) -> None:
    assert harness.max_tries == 2
    harness.run()
    harness.retry()
    assert (harness.try_number, harness.max_tries) == (2, 2)
    harness.clear()
    assert harness.max_tries == 4


def test_an_operator_that_waits_for_ever_is_an_error(harness: JobHarness, service: JobService) -> None:
    service.behaviour.looks_until_done = 10**9
    harness.clock.sleep(365 * 86400 - 600)
    with pytest.raises(StateWatcherError, match="has waited for"):
        harness.run()


def test_what_a_test_adds_is_in_the_context(service: JobService) -> None:
    class Dated(TokenReport):
        def submit_job(self, context: Any) -> str:
            return self.client.submit(f"{self.report} of {context['ds']}", self.job_token)

    harness = JobHarness(Dated(task_id="report", report="sales", address=service.address))
    harness.context["ds"] = "2026-01-31"
    assert harness.run() == "s3://reports/sales of 2026-01-31"


def test_it_runs_any_operator(service: JobService) -> None:
    class Plain(BaseOperator):
        def execute(self, context: Any) -> Any:
            context["ti"].xcom_push(key="a", value=[1])
            return 5

    harness = JobHarness(Plain(task_id="plain"))
    assert (harness.run(), harness.xcoms, harness.crash_points()) == (5, {"a": [1]}, [])
    upstream = JobHarness(UpstreamReport(task_id="report", report="sales", address=service.address))
    assert upstream.run() == "s3://reports/sales"
    assert "after store.set(remote_job_id)" in upstream.crash_points()


def test_the_service_says_that_it_is_a_fake(service: JobService) -> None:
    assert JobClient(service.address)._ask("GET", "/") == {"about": TELLS}
