"""One job, one result, on a real Airflow: task processes killed by SIGKILL, and tasks that Airflow stops for its own reasons."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_state_watchers.demo.airflow import Airflow
from tests.operators.job_service import JobService

DAG = """
import json, os, signal
from datetime import timedelta
from airflow.sdk import DAG
from airflow_state_watchers.job_harness import HOOKS, _Life, _Line
from tests.operators.reports import FoundReport, FullReport, PlainReport, TokenReport
from tests.operators.waking import WakingTrigger

class RescheduledReport(FullReport):
    wait = "reschedule"

class DeferredReport(FullReport):
    def job_trigger(self, external_id, context):
        return WakingTrigger(address="{address}", job_id=external_id, seconds={interval})

class Death(_Life):
    def _pass(self, point):
        if point == self._crash_at:
            os.kill(os.getpid(), signal.SIGKILL)

class Report({kind}):
    template_fields = ("report", "die_at")
    status_interval = {interval}
    adopt_wait = 10

    def __init__(self, *, die_at, **kwargs):
        super().__init__(**kwargs)
        self.die_at = die_at

    def execute(self, context):
        ti = context["ti"]
        with open("{notes}", "a") as file:
            file.write(json.dumps([context["run_id"], ti.try_number, ti.max_tries, os.getpid(), os.getppid()]) + "\\n")
        life = Death(self.die_at if ti.try_number == 1 else None)
        for hook in HOOKS:
            setattr(self, hook, life.wrapped(hook, getattr(self, hook)))
        return super().execute({{**context, "task_state_store": _Line(context["task_state_store"], life)}})

with DAG("{dag_id}", schedule=None, max_active_runs=20, catchup=False):
    Report(
        task_id="report", report="{{{{ dag_run.conf['report'] }}}}", die_at="{{{{ dag_run.conf.get('die_at', '') }}}}",
        address="{address}", retries=2, retry_delay=timedelta(seconds={delay}), {arguments}
    )
"""

POINTS = [
    "before store.get(remote_job_id.resume)",
    "before store.set(remote_job_id.resume)",
    "after store.set(remote_job_id.resume)",
    "before submit_job",
    "after submit_job",
    "before store.set(remote_job_id)",
    "after store.set(remote_job_id)",
    "before store.set(remote_job_id.resume) #2",
    "after store.set(remote_job_id.resume) #2",
    "before on_job_attached",
    "after on_job_attached",
    "before get_job_status",
    "after get_job_status #2",
    "after poll_until_complete",
    "before get_job_result",
    "after get_job_result",
]
WINDOW = {"after submit_job", "before store.set(remote_job_id)"}


@pytest.fixture
def service() -> Iterator[JobService]:
    with JobService() as service:
        yield service


class Reports:
    """A DAG of one resumable task, and the service that it uses."""

    def __init__(
        self,
        airflow: Airflow,
        service: JobService,
        dag_id: str,
        kind: str,
        tmp_path: Path,
        *,
        arguments: str = "",
        interval: float = 1,
        delay: float = 1,
    ) -> None:
        self.airflow, self.service, self.dag_id = airflow, service, dag_id
        self._notes = tmp_path / "notes"
        source = DAG.format(
            kind=kind,
            notes=self._notes,
            dag_id=dag_id,
            address=service.address,
            arguments=arguments,
            interval=interval,
            delay=delay,
        )
        airflow.write_dag(dag_id, source)
        airflow.wait_for_dag(dag_id)

    def start(self, report: str, **conf: str) -> str:
        # An API server on SQLite answers with an error now and then while others write; then there is no run.
        return self.airflow.wait_for(
            lambda: self.airflow.rest.trigger(self.dag_id, {"report": report, **conf}), 60, "a run"
        )

    def jobs(self, report: str) -> list[str]:
        return [job.id for job in self.service.jobs if job.request == report]

    def tries(self, run_id: str) -> list[list[Any]]:
        lines = [json.loads(line) for line in self._notes.read_text().splitlines()] if self._notes.exists() else []
        return [rest for run, *rest in lines if run == run_id]

    def task(self, run_id: str) -> dict[str, Any]:
        (task,) = self.airflow.rest.task_instances(self.dag_id, run_id)
        return task

    def run(self, run_id: str) -> dict[str, Any]:
        return next(run for run in self.airflow.rest.dag_runs(self.dag_id) if run["dag_run_id"] == run_id)

    def wait_for(self, run_id: str, state: str, *, tries: int = 1, timeout: float = 180) -> None:
        def reached() -> bool:
            task, run = self.task(run_id), self.run(run_id)
            # A task that is cleared before its run has ended is left behind by the run's end.
            ended = state != "success" or run["state"] == "success"
            return task["state"] == state and task["try_number"] >= tries and ended

        self.airflow.wait_for(reached, timeout, f"{self.dag_id} {run_id} to be {state} in try {tries}")

    def wait_until_it_waits(self, run_id: str, report: str, *, jobs: int = 1) -> None:
        """Wait until the task looks at its job's status."""
        self.airflow.wait_for(
            lambda: (
                len(self.jobs(report)) == jobs
                and next(job for job in self.service.jobs if job.id == self.jobs(report)[-1]).looks >= 1
            ),
            120,
            f"{run_id} to look at its job",
        )

    def result(self, run_id: str) -> Any:
        return self.airflow.rest.xcom(self.dag_id, run_id, "report")

    def log(self, run_id: str, try_number: int) -> str:
        return self.airflow.task_log(self.dag_id, run_id, "report", try_number)

    def mark(self, run_id: str, state: str) -> None:
        path = f"/dags/{self.dag_id}/dagRuns/{run_id}/taskInstances/report"
        self.airflow.rest.request("PATCH", path, json={"new_state": state})


@pytest.mark.parametrize(
    ("kind", "idempotent", "doubled"),
    [("TokenReport", True, set()), ("FoundReport", False, set()), ("PlainReport", False, WINDOW)],
)
def test_a_task_process_killed_at_any_point(
    kind: str, idempotent: bool, doubled: set[str], airflow: Airflow, service: JobService, tmp_path: Path
) -> None:
    service.behaviour.idempotent = idempotent
    reports = Reports(airflow, service, f"killed_{kind.lower()}", kind, tmp_path)
    runs = {point: reports.start(point, die_at=point) for point in POINTS}
    for point, run_id in runs.items():
        reports.wait_for(run_id, "success", tries=2, timeout=600)
        assert reports.result(run_id) == f"s3://reports/{point}"
        assert airflow.rest.xcom(reports.dag_id, run_id, "report", key="job") == reports.jobs(point)[-1]
        assert len(reports.tries(run_id)) == 2, point
    assert {point for point in POINTS if len(reports.jobs(point)) != 1} == doubled


def test_a_clear_raises_max_tries_and_a_retry_does_not(airflow: Airflow, service: JobService, tmp_path: Path) -> None:
    reports = Reports(airflow, service, "measured", "TokenReport", tmp_path)
    run_id = reports.start("sales", die_at="after get_job_status")
    reports.wait_for(run_id, "success", tries=2)
    assert len(reports.jobs("sales")) == 1
    airflow.rest.clear_tasks("measured", run_id, ["report"])
    reports.wait_for(run_id, "success", tries=3)
    assert len(reports.jobs("sales")) == 2
    airflow.rest.clear_run("measured", run_id)
    reports.wait_for(run_id, "success", tries=4)
    assert len(reports.jobs("sales")) == 3
    seen = [(try_number, max_tries) for try_number, max_tries, *_ in reports.tries(run_id)]
    assert seen == [(1, 2), (2, 2), (3, 4), (4, 5)]


@pytest.fixture
def running(airflow: Airflow, service: JobService, tmp_path: Path) -> Callable[..., tuple[Reports, str]]:
    """Start a run whose job goes on until the test lets it end."""

    def start(dag_id: str, arguments: str = "") -> tuple[Reports, str]:
        service.behaviour.looks_until_done = 10**9
        reports = Reports(airflow, service, dag_id, "FullReport", tmp_path, arguments=arguments)
        run_id = reports.start("sales")
        reports.wait_until_it_waits(run_id, "sales")
        return reports, run_id

    return start


def let_end(reports: Reports, run_id: str, *, tries: int) -> None:
    reports.service.behaviour.looks_until_done = 0
    reports.wait_for(run_id, "success", tries=tries)
    assert reports.result(run_id) == "s3://reports/sales"


@pytest.mark.parametrize("state", ["failed", "success"])
def test_a_task_marked_by_a_person_has_its_job_cancelled(
    state: str, running: Callable[..., tuple[Reports, str]]
) -> None:
    reports, run_id = running(f"marked_{state}")
    reports.mark(run_id, state)
    reports.airflow.wait_for(lambda: reports.service.cancelled, 60, "the job to be cancelled")
    assert reports.service.cancelled == reports.jobs("sales")
    assert len(reports.tries(run_id)) == 1


def test_a_task_cleared_while_it_runs_cancels_its_job_and_runs_again(
    running: Callable[..., tuple[Reports, str]],
) -> None:
    reports, run_id = running("cleared_running")
    reports.airflow.rest.clear_tasks("cleared_running", run_id, ["report"])
    reports.wait_until_it_waits(run_id, "sales", jobs=2)
    assert reports.service.cancelled == reports.jobs("sales")[:1]
    let_end(reports, run_id, tries=2)
    assert len(reports.jobs("sales")) == 2


@pytest.mark.parametrize("whom", ["supervisor", "task"])
def test_a_worker_that_is_shut_down_leaves_its_job_to_the_next_try(
    whom: str, running: Callable[..., tuple[Reports, str]]
) -> None:
    reports, run_id = running(f"deployed_{whom}")
    _, _, task_pid, supervisor_pid = reports.tries(run_id)[0]
    os.kill(supervisor_pid if whom == "supervisor" else task_pid, signal.SIGTERM)
    let_end(reports, run_id, tries=2)
    assert (len(reports.jobs("sales")), reports.service.cancelled) == (1, [])
    assert "is left running: a later try goes on with it" in reports.log(run_id, 1)
    assert "decision=REATTACH" in reports.log(run_id, 2) or "decision=COLLECT" in reports.log(run_id, 2)


def test_an_execution_timeout_leaves_the_job_to_the_next_try(running: Callable[..., tuple[Reports, str]]) -> None:
    reports, run_id = running("timed_out", "execution_timeout=timedelta(seconds=10)")
    reports.wait_for(run_id, "running", tries=2)
    let_end(reports, run_id, tries=2)
    assert (len(reports.jobs("sales")), reports.service.cancelled) == (1, [])
    assert "AirflowTaskTimeout" in reports.log(run_id, 1)


def test_a_rescheduled_task_gives_its_slot_back_and_finds_its_job(
    airflow: Airflow, service: JobService, tmp_path: Path
) -> None:
    service.behaviour.looks_until_done = 10**9
    # Airflow takes a task that comes back while its last process still ends for one that was killed.
    reports = Reports(airflow, service, "rescheduled", "RescheduledReport", tmp_path, interval=12)
    run_id = reports.start("sales")
    reports.wait_for(run_id, "up_for_reschedule")
    airflow.wait_for(lambda: len(reports.tries(run_id)) >= 3, 120, "three processes of one try")
    let_end(reports, run_id, tries=1)
    assert {try_number for try_number, *_ in reports.tries(run_id)} == {1}, reports.log(run_id, 1)
    assert len(reports.jobs("sales")) == 1


def test_a_deferred_task_finds_its_job_also_when_the_triggerer_dies(
    airflow: Airflow, service: JobService, tmp_path: Path
) -> None:
    service.behaviour.looks_until_done = 10**9
    reports = Reports(airflow, service, "deferred", "DeferredReport", tmp_path, interval=3)
    run_id = reports.start("sales")
    reports.wait_for(run_id, "deferred")
    airflow.kill("triggerer")
    airflow.start("triggerer")
    airflow.wait_for(lambda: len(reports.tries(run_id)) >= 2, 120, "the trigger to wake the task")
    let_end(reports, run_id, tries=1)
    assert {try_number for try_number, *_ in reports.tries(run_id)} == {1}
    assert (len(reports.jobs("sales")), service.cancelled) == (1, [])


def test_a_deferred_task_marked_by_a_person_has_its_job_cancelled_by_the_trigger(
    airflow: Airflow, service: JobService, tmp_path: Path
) -> None:
    service.behaviour.looks_until_done = 10**9
    reports = Reports(airflow, service, "deferred_marked", "DeferredReport", tmp_path, interval=600)
    run_id = reports.start("sales")
    reports.wait_for(run_id, "deferred")
    (job,) = service.jobs
    airflow.wait_for(lambda: job.looks == 2, 90, "the trigger to look too")
    reports.mark(run_id, "failed")
    airflow.wait_for(lambda: service.cancelled, 60, "the job to be cancelled")
    assert service.cancelled == reports.jobs("sales")


@pytest.mark.soak
def test_a_task_whose_heartbeats_are_lost_leaves_its_job_to_the_next_try(
    start_airflow: Callable[..., Airflow], service: JobService, tmp_path: Path
) -> None:
    # With the defaults a supervisor asks a server that is gone for many minutes before it gives up.
    airflow = start_airflow(
        config={
            "scheduler": {
                "task_instance_heartbeat_timeout": 30,
                "task_instance_heartbeat_timeout_detection_interval": 5,
            },
            "workers": {"execution_api_retries": 1, "max_failed_heartbeats": 2, "min_heartbeat_interval": 2},
        }
    )
    service.behaviour.looks_until_done = 10**9
    reports = Reports(airflow, service, "cut_off", "FullReport", tmp_path, delay=45)  # the server is back by then
    run_id = reports.start("sales")
    reports.wait_until_it_waits(run_id, "sales")
    (_, _, task_pid, _), *_ = reports.tries(run_id)
    airflow.stop("api-server")
    airflow.wait_for(lambda: not Path(f"/proc/{task_pid}").exists(), 180, "the task process to be ended")
    airflow.start("api-server")
    let_end(reports, run_id, tries=2)
    assert (len(reports.jobs("sales")), service.cancelled) == (1, [])
