"""A death at every point of a run, then a retry: how many jobs were started, and is the result that of an uninterrupted run.

Airflow's own mixin goes through the same sweep, as the baseline. Shown with ``pytest -rP``, or ``-s``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from airflow_state_watchers.job_harness import TaskState
from airflow_state_watchers.testing import JobHarness
from tests.operators.job_service import JobService
from tests.operators.reports import FoundReport, FullReport, OwnPollingReport, PlainReport, TokenReport, UpstreamReport


@dataclass
class Outcome:
    """What became of one death: by its point."""

    duplicates: dict[str, int]
    lost: list[str]
    points: int

    def __str__(self) -> str:
        return f"{self.points} deaths, {sum(self.duplicates.values())} duplicate jobs, {len(self.lost)} lost results"


def harness_for(operator: type[Any], service: JobService) -> JobHarness:
    service.reset()
    return JobHarness(operator(task_id="report", report="sales", address=service.address, retries=3))


def seen(harness: JobHarness, result: Any) -> Any:
    return result, dict(harness.xcoms)


def sweep(operator: type[Any], service: JobService) -> Outcome:
    harness = harness_for(operator, service)
    uninterrupted = seen(harness, harness.run())
    points = harness.crash_points()
    outcome = Outcome({}, [], len(points))
    for point in points:
        harness = harness_for(operator, service)
        harness.run(crash_at=point)
        result = harness.retry()
        if len(service.jobs) > 1:
            outcome.duplicates[point] = len(service.jobs) - 1
        elif seen(harness, result) != uninterrupted:
            outcome.lost.append(point)
    return outcome


WINDOW = {"after submit_job", "before store.set(remote_job_id)"}


@pytest.mark.parametrize(
    ("operator", "idempotent"), [(TokenReport, True), (OwnPollingReport, True), (FoundReport, False)]
)
def test_one_job_and_one_result_wherever_the_worker_dies(
    operator: type[Any], idempotent: bool, service: JobService
) -> None:
    service.behaviour.idempotent = idempotent
    outcome = sweep(operator, service)
    print(f"{operator.__name__}: {outcome}")
    assert outcome.duplicates == {}
    assert outcome.lost == []
    assert outcome.points == (24 if operator is OwnPollingReport else 26)


def test_without_tokens_or_a_search_just_one_window_remains(service: JobService) -> None:
    outcome = sweep(PlainReport, service)
    print(f"PlainReport: {outcome}, at {', '.join(outcome.duplicates)}")
    assert set(outcome.duplicates) == WINDOW
    assert outcome.lost == []


def test_the_baseline_upstreams_class(service: JobService) -> None:
    outcome = sweep(UpstreamReport, service)
    print(f"upstream's ResumableJobMixin: {outcome}")
    assert set(outcome.duplicates) == WINDOW
    assert "after store.set(remote_job_id)" in outcome.lost
    assert (outcome.points, len(outcome.lost)) == (16, 5)


@pytest.mark.parametrize(("operator", "idempotent"), [(TokenReport, True), (FullReport, False)])
def test_a_second_death_during_the_retry_changes_nothing(
    operator: type[Any], idempotent: bool, service: JobService
) -> None:
    service.behaviour.idempotent = idempotent
    harness = harness_for(operator, service)
    uninterrupted = seen(harness, harness.run())
    for first in harness.crash_points():
        second: str | None = ""
        tried: list[str] = []
        while second is not None:
            harness = harness_for(operator, service)
            harness.run(crash_at=first)
            if second:
                harness.retry(crash_at=second)
            result = harness.retry()
            assert len(service.jobs) == 1, (first, second)
            assert seen(harness, result) == uninterrupted, (first, second)
            if not second:
                remaining = harness.crash_points()
            tried.append(second)
            second = next((point for point in remaining if point not in tried), None)


@pytest.mark.parametrize(
    ("operator", "idempotent", "jobs"),
    [(TokenReport, True, 1), (FoundReport, False, 1), (PlainReport, False, 2), (UpstreamReport, False, 2)],
)
def test_a_response_that_is_lost_after_the_job_was_started(
    operator: type[Any], idempotent: bool, jobs: int, service: JobService
) -> None:
    service.behaviour.idempotent = idempotent
    harness = harness_for(operator, service)
    service.behaviour.lost_responses = 1
    with pytest.raises(Exception, match="Remote end closed"):
        harness.run()
    assert harness.retry() == "s3://reports/sales"
    assert len(service.jobs) == jobs


@pytest.mark.parametrize(("hidden", "jobs"), [(3, 1), (100, 2)])
def test_a_job_list_that_lags_is_waited_for_as_long_as_adopt_wait(hidden: int, jobs: int, service: JobService) -> None:
    harness = harness_for(FoundReport, service)
    harness.run(crash_at="after submit_job")
    service.behaviour.hidden_searches = hidden
    assert harness.retry() == "s3://reports/sales"
    assert len(service.jobs) == jobs


@pytest.mark.parametrize(
    ("operator", "idempotent", "late", "jobs"),
    [(FoundReport, False, 3, 1), (FoundReport, False, 99, 2), (TokenReport, True, 99, 1), (FullReport, True, 99, 1)],
)
def test_a_zombie_that_submits_after_its_retry_has_begun(
    operator: type[Any], idempotent: bool, late: int, jobs: int, service: JobService
) -> None:
    """A worker that is cut off from Airflow and not dead: within ``adopt_wait``, or after its retry's own submission."""
    service.behaviour.idempotent = idempotent
    harness = harness_for(operator, service)
    harness.run(crash_at="before submit_job")
    token = harness.store.get("remote_job_id.resume")["token"]

    def submit_late() -> None:
        if service.searches == late:
            service.submit("sales", token)

    service.behaviour.on_search = submit_late
    assert harness.retry() == "s3://reports/sales"
    if service.searches < late:
        service.submit("sales", token)
    assert len(service.jobs) == jobs


@pytest.mark.parametrize(("operator", "jobs"), [(TokenReport, 1), (PlainReport, 1), (UpstreamReport, 2)])
def test_a_process_whose_task_instance_is_gone_starts_no_job(
    operator: type[Any], jobs: int, service: JobService
) -> None:
    """Airflow has given the task another instance meanwhile. To this process its state is empty, and it can write none."""
    harness = harness_for(operator, service)
    harness.run(crash_at="after get_job_status")
    state = harness.store
    harness.store = GoneState()
    with pytest.raises(RuntimeError, match="Task instance not found"):
        harness.retry()
    harness.store = state
    harness.retry()
    assert len(service.jobs) == jobs


class GoneState(TaskState):
    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        raise RuntimeError("404: Task instance not found")
