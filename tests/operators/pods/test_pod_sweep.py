"""A worker killed before or after each of its calls, and the try after it: one pod, one result."""

from __future__ import annotations

import pytest
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator

from airflow_state_watchers.operators.pod import ResumablePodOperator
from tests.operators.kubernetes_api import KubernetesApi
from tests.operators.pods.kubelet import CREATE, always, finished
from tests.operators.pods.task import Death, Killed, Task


class Resumable(ResumablePodOperator):
    status_interval = 0.05


def work(operator: type) -> Task:
    arguments = {"image": "x", "namespace": "default", "do_xcom_push": True, "startup_check_interval_seconds": 0}
    return Task(operator, arguments)


def swept(operator: type, kube: KubernetesApi, *, after: bool) -> tuple[list[str], int, int]:
    """Kill at each call in turn. Returns the calls with another outcome than one pod and its result, and how many those are."""
    wrong: list[str] = []
    at, pods = 0, 0
    while True:
        at += 1
        always(kube, CREATE, finished(kube, xcom='{"rows": 7}'))
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
def test_one_pod_and_its_result_wherever_the_worker_is_killed(kube: KubernetesApi, after: bool) -> None:
    wrong, calls, _ = swept(Resumable, kube, after=after)
    assert calls > 20
    assert wrong == []


def test_upstream_in_the_same_sweep_runs_pods_twice(kube: KubernetesApi) -> None:
    wrong, calls, pods = swept(KubernetesPodOperator, kube, after=True)
    print(f"upstream: {len(wrong)} of {calls} deaths end otherwise:", *wrong, sep="\n  ")
    assert pods == 2
