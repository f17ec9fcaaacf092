"""A worker killed before or after each of its calls, and the try after it: one pod, one result."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import BaseOperator
from kubernetes.client import models as k8s

from airflow_state_watchers.operators.pod import PodResumeMixin, ResumablePodOperator
from tests.operators.kubernetes_api import KubernetesApi
from tests.operators.pods.kubelet import CREATE, Step, always, finished
from tests.operators.pods.task import Death, Killed, Task


class Resumable(ResumablePodOperator):
    status_interval = 0.05


class Plain(PodResumeMixin, BaseOperator):
    status_interval = 0.05

    def build_pod_request_obj(self, context: Any) -> k8s.V1Pod:
        metadata = k8s.V1ObjectMeta(namespace="default", generate_name="plain-")
        spec = k8s.V1PodSpec(containers=[k8s.V1Container(name="base", image="x")])
        return k8s.V1Pod(metadata=metadata, spec=spec)

    def execute(self, context: Any) -> Any:
        ended = self.execute_pod(context).status.container_statuses[0].state.terminated
        return json.loads(ended.message)


def work(operator: type) -> Task:
    if operator is Plain:
        return Task(operator)
    arguments = {"image": "x", "namespace": "default", "do_xcom_push": True, "startup_check_interval_seconds": 0}
    return Task(operator, arguments)


def ending(kube: KubernetesApi, operator: type) -> Step:
    if operator is not Plain:
        return finished(kube, xcom='{"rows": 7}')

    def step(name: str) -> None:
        kube.cluster.run(name)
        kube.cluster.finish(name, message='{"rows": 7}')

    return step


def swept(operator: type, kube: KubernetesApi, *, after: bool) -> tuple[list[str], int, int]:
    """Kill at each call in turn. Returns the calls with another outcome than one pod and its result, and how many those are."""
    wrong: list[str] = []
    at, pods = 0, 0
    while True:
        at += 1
        always(kube, CREATE, ending(kube, operator))
        task, death, before = work(operator), Death(at=at, after=after), len(kube.pods.created)
        try:
            result = task.run(death)
        except Killed:
            result = None
        if not death.dead:
            return wrong, at - 1, pods
        call = death.calls[-1].replace(kube.url, "")
        for _ in range(2):
            try:
                result = task.run()
                break
            except Exception as error:
                call += f" ({type(error).__name__})"
        made = len(kube.pods.created) - before
        pods = max(pods, made)
        if (result, made) != ({"rows": 7}, 1):
            wrong.append(f"{at} {call.split('?')[0]}: {made} pods, {result}")
        for name in kube.cluster.names():
            kube.cluster.collect(name)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("operator", "least"), [(Resumable, 20), (Plain, 8)])
def test_one_pod_and_its_result_wherever_the_worker_is_killed(
    kube: KubernetesApi, operator: type, least: int, after: bool
) -> None:
    wrong, calls, _ = swept(operator, kube, after=after)
    assert calls > least
    assert wrong == []


def test_upstream_in_the_same_sweep_runs_pods_twice(kube: KubernetesApi) -> None:
    wrong, calls, pods = swept(KubernetesPodOperator, kube, after=True)
    print(f"upstream: {len(wrong)} of {calls} deaths end otherwise:", *wrong, sep="\n  ")
    assert pods == 2
