"""Against moto's server: a run is that of upstream's operator, and it stays one job wherever the worker dies."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from airflow.providers.amazon.aws.hooks.batch_client import BatchClientHook
from airflow.providers.amazon.aws.operators.athena import AthenaOperator
from airflow.providers.amazon.aws.operators.batch import BatchOperator

from airflow_state_watchers import ResumableAthenaOperator, ResumableBatchOperator
from airflow_state_watchers.testing import JobHarness

Clients = Callable[[str], Any]
BATCH = {"job_name": "sums", "job_queue": "queue", "job_definition": "sums", "tags": {"team": "sales"}}
ATHENA = {"query": "SELECT 1", "database": "lake", "output_location": "s3://lake/results/", "sleep_time": 1}


@pytest.fixture(autouse=True)
def upstream_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchClientHook, "delay", staticmethod(lambda delay=None: None))


def harness(operator: type[Any], **arguments: Any) -> JobHarness:
    return JobHarness(operator(task_id="job", aws_conn_id="jobs", retries=2, **arguments))


def jobs_of(batch: Any) -> list[Any]:
    return list(batch.list_jobs(jobQueue="queue", filters=[{"name": "JOB_NAME", "values": ["sums"]}])["jobSummaryList"])


def seen(harness: JobHarness, result: str) -> str:
    """Result and XComs (links are XComs), whatever id the job got."""
    return json.dumps([result, harness.xcoms], sort_keys=True).replace(result, "ID")


@pytest.mark.parametrize("arguments", [{}, {"wait_for_completion": False}])
def test_a_batch_job_gives_the_result_and_the_links_of_upstreams_operator(
    moto: Clients, arguments: dict[str, Any]
) -> None:
    ours, theirs = (harness(cls, **BATCH, **arguments) for cls in (ResumableBatchOperator, BatchOperator))
    assert seen(ours, ours.run()) == seen(theirs, theirs.run())
    assert "batch_job_details" in ours.xcoms
    batch = moto("batch")
    (first, second) = batch.describe_jobs(jobs=[job["jobId"] for job in jobs_of(batch)])["jobs"]
    tags = [{**first["tags"]}, {**second["tags"]}]
    token = next(tag for tag in tags if "airflow-job-token" in tag).pop("airflow-job-token")
    assert tags == [{"team": "sales"}] * 2
    assert token == ours.store.get("batch_job_id.resume")["token"]


def test_one_batch_job_wherever_the_worker_dies(moto: Clients) -> None:
    batch = moto("batch")
    first = harness(ResumableBatchOperator, **BATCH)
    uninterrupted = seen(first, first.run())
    started = 1
    assert {"before submit_job", "after submit_job", "after get_job_result"} <= set(first.crash_points())
    for point in first.crash_points():
        again = harness(ResumableBatchOperator, **BATCH)
        again.run(crash_at=point)
        assert seen(again, again.retry()) == uninterrupted, point
        started += 1
        assert len(jobs_of(batch)) == started, point


def test_an_athena_query_gives_the_result_and_the_links_of_upstreams_operator(moto: Clients) -> None:
    ours, theirs = (harness(cls, **ATHENA) for cls in (ResumableAthenaOperator, AthenaOperator))
    assert seen(ours, ours.run()) == seen(theirs, theirs.run())
    assert "_athena_query_results" in ours.xcoms
    athena = moto("athena")
    told = [
        athena.get_query_execution(QueryExecutionId=one) for one in athena.list_query_executions()["QueryExecutionIds"]
    ]
    first, second = (one["QueryExecution"] for one in told)
    assert (
        first["QueryExecutionContext"]
        == second["QueryExecutionContext"]
        == {"Database": "lake", "Catalog": "AwsDataCatalog"}
    )


def test_moto_ignores_athenas_request_tokens(moto: Clients) -> None:
    """So deaths are swept on the fake; should this fail, moto can take its place."""
    athena, token = moto("athena"), "0" * 36
    ids = {
        athena.start_query_execution(
            QueryString="SELECT 1", ClientRequestToken=token, ResultConfiguration={"OutputLocation": "s3://lake/"}
        )["QueryExecutionId"]
        for _ in range(2)
    }
    assert len(ids) == 2
