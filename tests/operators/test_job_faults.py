"""Every fault of jobs that was seen in the field: right for our class, and shown for upstream's where it has the fault."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk.execution_time.context import NEVER_EXPIRE

from airflow_state_watchers import JobError, JobFailed, JobGone, JobStatusTimeout
from airflow_state_watchers.testing import JobHarness
from tests.operators.job_service import JobService, Refused
from tests.operators.logs import Lines, listen
from tests.operators.reports import (
    FullReport,
    OwnPollingReport,
    PlainReport,
    ReusingReport,
    TokenReport,
    UpstreamReport,
)


def harness_of(
    kind: type[Any], service: JobService, report: str = "sales", **policies: Any
) -> tuple[JobHarness, Lines]:
    operator = kind(task_id="report", report=report, address=service.address, retries=3)
    for name, value in policies.items():
        setattr(operator, name, value)
    return JobHarness(operator), listen(operator)


def ids(service: JobService) -> list[str]:
    return [job.id for job in service.jobs]


def tokens(service: JobService) -> set[str | None]:
    return {job.token for job in service.jobs}


# A second job after a crash: the sweep. None after a reconnect: the sweep, and here with what the operator pushes.


def test_the_result_after_a_reconnect_is_the_jobs(service: JobService) -> None:
    harness, _ = harness_of(OwnPollingReport, service)
    harness.run(crash_at="before poll_until_complete")
    assert (harness.retry(), harness.xcoms) == ("s3://reports/sales", {"job": "job-1"})
    upstream, _ = harness_of(UpstreamReport, service)
    upstream.run(crash_at="before poll_until_complete")
    assert upstream.retry() is None


# A clear that does not rerun


def test_a_cleared_task_runs_again(service: JobService) -> None:
    harness, lines = harness_of(PlainReport, service)
    harness.run()
    harness.clear()
    assert harness.run() == "s3://reports/sales"
    assert ids(service) == ["job-1", "job-2"]
    assert len(lines.having("decision=SUBMIT")) == 2
    upstream, _ = harness_of(UpstreamReport, service)
    upstream.run()
    upstream.clear()
    upstream.run()
    assert ids(service) == ["job-1", "job-2", "job-3"]


def test_a_cleared_task_is_retried_as_any_other(service: JobService) -> None:
    harness, _ = harness_of(TokenReport, service)
    harness.run()
    harness.clear()
    harness.run(crash_at="before get_job_status #2")
    assert harness.retry() == "s3://reports/sales"
    assert ids(service) == ["job-1", "job-2"]
    assert len(tokens(service)) == 2


def test_a_task_cleared_while_it_ran_cancels_its_job_first(service: JobService) -> None:
    harness, _ = harness_of(FullReport, service)
    harness.run(crash_at="after get_job_status")
    harness.clear()
    assert harness.run() == "s3://reports/sales"
    assert (service.cancelled, ids(service)) == (["job-1"], ["job-1", "job-2"])


@pytest.mark.parametrize(
    ("kind", "told"), [(PlainReport, "PlainReport has no cancel_job"), (FullReport, "cancel_on_kill is False")]
)
def test_what_cannot_be_cancelled_is_named_and_not_doubled(kind: type[Any], told: str, service: JobService) -> None:
    harness, _ = harness_of(kind, service, cancel_on_kill=kind is PlainReport)
    harness.run(crash_at="after get_job_status")
    harness.clear()
    with pytest.raises(JobError, match=f"job 'job-1' of before the clear still runs.*{told}.*on_clear='reuse'"):
        harness.run()
    service.jobs[0].status = "FAILED"
    assert harness.retry() == "s3://reports/sales"
    assert (service.cancelled, ids(service)) == ([], ["job-1", "job-2"])


def test_a_job_whose_id_was_never_stored_is_cancelled_after_a_clear_too(service: JobService) -> None:
    harness, lines = harness_of(FullReport, service)
    harness.run(crash_at="after submit_job")
    harness.clear()
    assert harness.run() == "s3://reports/sales"
    assert (service.cancelled, ids(service)) == (["job-1"], ["job-1", "job-2"])
    assert [line.split("decision=")[1].split(",")[0] for line in lines.having("decision=")] == [
        "SUBMIT",
        "ADOPT",
        "CANCEL_THEN_SUBMIT",
    ]


def test_a_cancelled_job_is_waited_for_before_the_next_is_submitted(service: JobService) -> None:
    harness, _ = harness_of(FullReport, service)
    harness.run(crash_at="after get_job_status")
    harness.clear()
    service.behaviour.refuses_to_stop = True
    service.behaviour.looks_until_done = 6
    harness.run(crash_at="before submit_job")
    assert service.status_of(service.jobs[0]) == "SUCCEEDED"


# Another map index's job


def test_with_reuse_a_clear_takes_its_job_up_again(service: JobService) -> None:
    harness, lines = harness_of(ReusingReport, service)
    harness.run()
    harness.clear()
    assert harness.run() == "s3://reports/sales"
    assert ids(service) == ["job-1"]
    assert "decision=COLLECT" in lines


@pytest.mark.parametrize(("died", "cancelled"), [(None, []), ("after get_job_status", ["job-1"])])
def test_with_reuse_another_items_job_is_not_taken_over(
    died: str | None, cancelled: list[str], service: JobService
) -> None:
    """A mapped task is expanded anew: the same map index, another item."""
    harness, _ = harness_of(ReusingReport, service)
    harness.run(crash_at=died)
    other, lines = harness_of(ReusingReport, service, report="costs")
    other.store, other.try_number = harness.store, harness.try_number
    other.clear()
    assert other.run() == "s3://reports/costs"
    assert (service.cancelled, ids(service)) == (cancelled, ["job-1", "job-2"])
    assert "the request has changed in report, so its job is not used again" in lines
    assert "sales" not in str(harness.store.values)


def test_upstreams_class_hands_out_another_items_result(service: JobService) -> None:
    harness, _ = harness_of(UpstreamReport, service)
    harness.run()
    other, _ = harness_of(UpstreamReport, service, report="costs")
    other.store, other.try_number = harness.store, harness.try_number
    other.clear()
    assert other.run() == "s3://reports/sales"


def test_a_retry_keeps_its_job_whatever_has_drifted(service: JobService) -> None:
    harness, _ = harness_of(ReusingReport, service, "at 12:01")
    harness.run(crash_at="after get_job_status")
    drifted, lines = harness_of(ReusingReport, service, "at 12:05")
    drifted.store = harness.store
    drifted.run()
    assert ids(service) == ["job-1"]
    assert "the request has changed in report, which a retry does not mind" in lines


# An id that has expired before the retry


def test_what_is_stored_never_expires(service: JobService) -> None:
    harness, _ = harness_of(PlainReport, service)
    harness.run()
    assert harness.store.retentions == {"remote_job_id": NEVER_EXPIRE, "remote_job_id.resume": NEVER_EXPIRE}
    assert harness.store.get("remote_job_id") == "job-1"
    upstream, _ = harness_of(UpstreamReport, service)
    upstream.run()
    assert upstream.store.retentions == {"remote_job_id": None}


@pytest.mark.parametrize("key", ["remote_job_id", "remote_job_id.resume"])
def test_either_key_is_enough_to_find_the_job(key: str, service: JobService) -> None:
    harness, _ = harness_of(PlainReport, service)
    harness.run(crash_at="after get_job_status")
    harness.store.delete(key)
    assert harness.retry() == "s3://reports/sales"
    assert ids(service) == ["job-1"]
    assert set(harness.store.values) == {"remote_job_id", "remote_job_id.resume"}


# A fixed token that replays a failed run


def test_a_failed_job_gets_a_new_token(service: JobService) -> None:
    service.behaviour.idempotent, service.behaviour.ends_as = True, "FAILED"
    harness, _ = harness_of(TokenReport, service)
    with pytest.raises(JobFailed, match="job 'job-1': it has ended with status 'FAILED'"):
        harness.run()
    service.jobs[0].status, service.behaviour.ends_as = "FAILED", "SUCCEEDED"
    assert harness.retry() == "s3://reports/sales"
    assert ids(service) == ["job-1", "job-2"]
    assert len(tokens(service)) == 2
    assert harness.store.get("remote_job_id.resume")["attempt"] == 2


# A poll limit that is reached while the job runs on


def test_a_time_out_leaves_the_job_and_the_next_try_waits_for_it(service: JobService) -> None:
    service.behaviour.looks_until_done = 15
    harness, _ = harness_of(FullReport, service, status_timeout=timedelta(minutes=5))
    with pytest.raises(
        JobStatusTimeout, match=r"job 'job-1': not ended after status_timeout=0:05:00 \(status 'RUNNING'\)"
    ):
        harness.run()
    assert harness.retry() == "s3://reports/sales"
    assert (service.cancelled, ids(service)) == ([], ["job-1"])


# Unknown states


def test_an_unknown_status_waits_is_named_and_is_never_resubmitted(service: JobService) -> None:
    service.behaviour.runs_as, service.behaviour.looks_until_done = "PREEMPTED", 4
    harness, lines = harness_of(FullReport, service)
    assert harness.run() == "s3://reports/sales"
    assert ids(service) == ["job-1"]
    told = "job 'job-1': status 'PREEMPTED' is neither active, succeeded nor failed for FullReport; add it to one of the three"
    assert len(lines.having(told)) == 4
    assert "(look 4 in a row)" in lines


def test_an_unknown_status_is_not_polled_for_ever(service: JobService) -> None:
    service.behaviour.runs_as, service.behaviour.looks_until_done = "PREEMPTED", 10_000
    harness, _ = harness_of(FullReport, service, status_timeout=3600)
    for attempt in (harness.run, harness.retry):
        with pytest.raises(JobStatusTimeout, match="'PREEMPTED' is neither"):
            attempt()
    assert ids(service) == ["job-1"]


def test_without_is_job_failed_the_rule_is_upstreams(service: JobService) -> None:
    service.behaviour.runs_as = "PREEMPTED"
    for kind, error in ((PlainReport, JobFailed), (UpstreamReport, RuntimeError)):
        harness, _ = harness_of(kind, service)
        with pytest.raises(error, match="PREEMPTED"):
            harness.run()


# AccessDenied read as "not found"


def test_a_look_that_is_denied_waits(service: JobService) -> None:
    harness, lines = harness_of(PlainReport, service)
    harness.run(crash_at="after get_job_status")
    service.behaviour.denied = 3
    assert harness.retry() == "s3://reports/sales"
    assert ids(service) == ["job-1"]
    assert len(lines.having("decision=WAIT")) == 3
    assert "job 'job-1': its status cannot be looked up: Refused: 403" in lines
    upstream, _ = harness_of(UpstreamReport, service)
    upstream.run(crash_at="after get_job_status")
    service.behaviour.denied = 1
    with pytest.raises(Refused):
        upstream.retry()


def test_a_search_that_is_denied_waits_too(service: JobService) -> None:
    harness, lines = harness_of(FullReport, service)
    harness.run(crash_at="after submit_job")
    service.behaviour.denied = 3
    assert harness.retry() == "s3://reports/sales"
    assert ids(service) == ["job-1"]
    assert "the job: find_job failed: Refused: 403" in lines


# Gone


def test_a_job_that_is_gone_is_submitted_again_so_often_and_no_more(service: JobService) -> None:
    harness, _ = harness_of(TokenReport, service, max_resubmits=2)
    service.behaviour.looks_until_done = 10_000
    service.behaviour.forgotten = {"job-1", "job-2", "job-3"}
    with pytest.raises(JobGone, match="job 'job-3': job-3: 404, and max_resubmits=2 jobs were submitted again already"):
        harness.run()
    with pytest.raises(JobGone):
        harness.retry()
    assert ids(service) == ["job-1", "job-2", "job-3"]
    assert len(tokens(service)) == 3
    service.behaviour.looks_until_done = 2
    harness.clear()
    harness.run()
    assert ids(service) == ["job-1", "job-2", "job-3", "job-4"]


def test_a_job_that_is_not_visible_yet_is_not_gone(service: JobService) -> None:
    harness, lines = harness_of(TokenReport, service)
    service.behaviour.forgotten = {"job-1"}

    def appears(seconds: float) -> None:
        if harness.clock.now() > 30:
            service.behaviour.forgotten = set()
        sleep(seconds)

    sleep = harness.clock.sleep
    harness.clock.sleep = appears  # type: ignore[method-assign]
    assert harness.run() == "s3://reports/sales"
    assert ids(service) == ["job-1"]
    assert "decision=REATTACH" in lines


# A deploy between two tries: to our class and back


@pytest.mark.parametrize("point", ["after store.set(remote_job_id)", "after get_job_status", "before get_job_result"])
@pytest.mark.parametrize(("first", "second"), [(UpstreamReport, TokenReport), (TokenReport, UpstreamReport)])
def test_an_operator_moves_to_our_class_and_back_with_a_retry_in_flight(
    first: type[Any], second: type[Any], point: str, service: JobService
) -> None:
    before, _ = harness_of(first, service)
    before.run(crash_at=point)
    after, _ = harness_of(second, service)
    after.store = before.store
    result = after.run()
    assert ids(service) == ["job-1"]
    assert result == "s3://reports/sales" or second is UpstreamReport
    back, _ = harness_of(first, service)
    back.store = before.store
    assert back.run() == "s3://reports/sales"
    assert ids(service) == ["job-1"]


def test_what_upstreams_class_submits_in_between_is_the_current_job(service: JobService) -> None:
    service.behaviour.ends_as = "FAILED"
    ours, _ = harness_of(TokenReport, service)
    with pytest.raises(JobFailed):
        ours.run()
    service.jobs[0].status, service.behaviour.ends_as = "FAILED", "SUCCEEDED"
    theirs, _ = harness_of(UpstreamReport, service)
    theirs.store = ours.store
    theirs.run(crash_at="after get_job_status #2")
    assert ids(service) == ["job-1", "job-2"]
    old = ours.store.get("remote_job_id.resume")["token"]
    assert ours.retry() == "s3://reports/sales"
    assert ids(service) == ["job-1", "job-2"]
    record = ours.store.get("remote_job_id.resume")
    assert (record["external_id"], record["token"] == old) == ("job-2", False)


def test_a_clear_is_seen_after_the_first_try_that_came_from_upstreams_class(service: JobService) -> None:
    theirs, _ = harness_of(UpstreamReport, service)
    theirs.run()
    ours, _ = harness_of(TokenReport, service)
    ours.store = theirs.store
    ours.run()
    assert ids(service) == ["job-1"]
    ours.clear()
    ours.run()
    assert ids(service) == ["job-1", "job-2"]
