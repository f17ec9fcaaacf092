"""A pod is found again, and one pod gives one result."""

from __future__ import annotations

from airflow_state_watchers.operators.pod import ResumablePodOperator
from tests.operators.kubernetes_api import KubernetesApi
from tests.operators.pods.task import Task


def test_a_pod_that_runs_to_its_end(kube: KubernetesApi) -> None:
    def done(request: str) -> None:
        if request.startswith("POST"):
            name = kube.cluster.names()[0]
            kube.cluster.run(name)
            kube.cluster.say(name, "one", "two")
            kube.cluster.complete(name)

    kube.on_done = done
    task = Task(ResumablePodOperator, {"image": "x", "namespace": "default"})
    assert task.run() is None
    assert kube.pods.created[0]["metadata"]["labels"]["state-watchers/token"]
    print(task.store.values)
    print("\n".join(kube.requests))
    assert kube.cluster.names() == []
