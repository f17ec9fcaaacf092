"""One pod, one result, on a real Airflow: task processes killed by SIGKILL or stopped, before a fake Kubernetes API."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from airflow_state_watchers.demo.airflow import Airflow
from tests.operators.kubernetes_api import KubernetesApi

DAG = """
import json, os
from datetime import timedelta
from airflow.sdk import DAG
from airflow_state_watchers import ResumablePodOperator

class Noted(ResumablePodOperator):
    status_interval = 1

    def execute(self, context):
        with open("{notes}", "a") as file:
            file.write(json.dumps([os.getpid(), os.getppid()]) + "\\n")
        return super().execute(context)

with DAG("{dag_id}", schedule=None, catchup=False):
    Noted(
        task_id="work", image="x", namespace="default", config_file="{config}", do_xcom_push=True,
        startup_check_interval_seconds=1, retries=2, retry_delay=timedelta(seconds=1),
        {arguments}
    )
"""


class Pods:
    """A DAG of one task with a pod, which runs until the test lets it end."""

    def __init__(self, airflow: Airflow, kube: KubernetesApi, place: Path, dag_id: str, arguments: str) -> None:
        self.airflow, self.kube, self.dag_id, self._notes = airflow, kube, dag_id, place / "notes"
        config = place / "kubeconfig"
        config.write_text(yaml.safe_dump(kube.config()))
        source = DAG.format(notes=self._notes, config=config, dag_id=dag_id, arguments=arguments)
        airflow.write_dag(dag_id, source)
        airflow.wait_for_dag(dag_id)
        kube.on_done = self._start_what_was_created
        self.run_id = airflow.rest.trigger(dag_id, {})
        airflow.wait_for(lambda: kube.pods.created, 120, f"{dag_id} to start its pod")

    def _start_what_was_created(self, request: str) -> None:
        if request.startswith("POST") and request.endswith("/pods"):
            name = self.kube.cluster.newest()
            self.kube.cluster.run(name)
            self.kube.cluster.say(name, "one", "two")

    def follows(self, *, times: int) -> None:
        """Wait until a task follows a pod's log, for the time that is given."""
        self.airflow.wait_for(
            lambda: len(self.kube.asked("/log")) >= times, 120, f"{self.dag_id} to follow its pod's log"
        )

    def process(self) -> tuple[int, int]:
        """The newest try's process, and its supervisor's."""
        task, supervisor = json.loads(self._notes.read_text().splitlines()[-1])
        return task, supervisor

    def let_end(self, *, tries: int | None = None) -> None:
        name = self.kube.cluster.newest()
        self.kube.cluster.write_xcom(name, '{"rows": 7}')
        self.kube.cluster.finish(name)
        self.airflow.wait_for(lambda: self.state()[0] == "success", 180, f"{self.dag_id} to succeed")
        assert tries in (None, self.state()[1])
        assert self.airflow.rest.xcom(self.dag_id, self.run_id, "work") == {"rows": 7}

    def state(self) -> tuple[str, int]:
        (task,) = self.airflow.rest.task_instances(self.dag_id, self.run_id)
        return task["state"], task["try_number"]

    def mark(self, state: str) -> None:
        path = f"/dags/{self.dag_id}/dagRuns/{self.run_id}/taskInstances/work"
        self.airflow.rest.request("PATCH", path, json={"new_state": state})

    def log(self, try_number: int) -> str:
        return self.airflow.task_log(self.dag_id, self.run_id, "work", try_number)


@pytest.fixture
def kube() -> Iterator[KubernetesApi]:
    api = KubernetesApi()
    yield api
    api.stop()


@pytest.fixture
def pods(airflow: Airflow, kube: KubernetesApi, tmp_path: Path) -> Callable[..., Pods]:
    return lambda dag_id, arguments="": Pods(airflow, kube, tmp_path, dag_id, arguments)


def test_a_killed_task_process(pods: Callable[..., Pods]) -> None:
    task = pods("pod_killed")
    task.follows(times=1)
    os.kill(task.process()[0], signal.SIGKILL)
    task.follows(times=2)
    task.let_end(tries=2)
    assert len(task.kube.pods.created) == 1
    assert "decision=REATTACH" in task.log(2)


def test_a_worker_that_is_shut_down_shows_no_line_twice(pods: Callable[..., Pods]) -> None:
    task = pods("pod_deployed")
    task.follows(times=1)
    os.kill(task.process()[1], signal.SIGTERM)
    task.follows(times=2)
    task.kube.cluster.say(task.kube.cluster.newest(), "three")
    task.let_end(tries=2)
    assert len(task.kube.pods.created) == 1
    assert task.kube.pods.deleted == [task.kube.pods.created[0]["metadata"]["uid"]]  # once it had ended
    assert "is left running: a later try goes on with it" in task.log(1)
    shown = [line for line in ("one", "two", "three") if f"[base] {line}" in task.log(2)]
    assert shown == ["three"]


@pytest.mark.parametrize("state", ["failed", "success"])
def test_a_task_marked_by_a_person_has_its_pod_deleted(state: str, pods: Callable[..., Pods]) -> None:
    task = pods(f"pod_marked_{state}")
    task.follows(times=1)
    task.mark(state)
    task.airflow.wait_for(lambda: not task.kube.cluster.names(), 60, "the pod to be deleted")
    assert task.state()[0] == state
    assert len(task.kube.pods.created) == 1


def test_an_execution_timeout_ends_the_pod(pods: Callable[..., Pods]) -> None:
    task = pods("pod_timed_out", "execution_timeout=timedelta(seconds=15)")
    first = task.kube.cluster.newest()
    task.airflow.wait_for(lambda: len(task.kube.pods.created) == 2, 120, "a second pod")
    assert first not in task.kube.cluster.names()
    task.follows(times=2)
    task.let_end(tries=2)


def test_a_deferred_task_comes_back_to_its_pod(pods: Callable[..., Pods]) -> None:
    task = pods("pod_deferred", "deferrable=True, poll_interval=1,")
    task.airflow.wait_for(lambda: task.state()[0] == "deferred", 60, "the task to be deferred")
    first = task.kube.cluster.newest()
    task.kube.cluster.drain(first)
    task.airflow.wait_for(lambda: len(task.kube.pods.created) == 2, 120, "the pod that was drained to be run again")
    task.airflow.wait_for(lambda: task.state()[0] == "deferred", 60, "the task to be deferred")
    # On a busy machine Airflow itself may take a task that comes back at once for one that has died, and try it again.
    task.let_end()
    assert task.kube.cluster.names() == []
