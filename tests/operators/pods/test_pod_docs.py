"""The page on pods: its example runs as it stands, and what it says of policies, stored keys and tests is so."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from airflow_state_watchers.core.resume_codec import load_record
from airflow_state_watchers.operators.pod import PodResumeMixin
from tests.operators.kubernetes_api import KubernetesApi
from tests.operators.kubernetes_cluster import Cluster
from tests.operators.pods.kubelet import CREATE
from tests.operators.pods.task import Task

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/howto/resume_pods.rst").read_text()


def test_the_example_runs(kube: KubernetesApi) -> None:
    cluster = Cluster(kube.pods, "etl")

    def done(request: str) -> None:
        if re.search(CREATE, request):
            cluster.run(cluster.names()[0])
            cluster.finish(cluster.names()[0], container="count", message="42")

    kube.on_done = done
    operator = runpy.run_path(str(Path(__file__).with_name("examples") / "count_rows.py"))["CountRows"]
    task = Task(operator, {"table": "orders"})
    assert task.run() == "42"
    stored = {key for key in task.store.values if key.startswith("pod_identifier")}
    assert all(
        f"``{key.removeprefix('pod_identifier') or key}``" in PAGE or key == "pod_identifier.resume" for key in stored
    )
    assert load_record(task.store.values["pod_identifier.resume"]).attempt == 1


def test_the_policies_and_their_defaults() -> None:
    told = dict(re.findall(r"^   \* - ``(\w+)``\n     - ``([^`]+)``\n", PAGE, re.MULTILINE))
    assert told == {
        name: f'"{value}"' if isinstance(value, str) else str(value)
        for name, value in vars(PodResumeMixin).items()
        if name in PodResumeMixin.__annotations__ and not name.startswith("_")
    }


def test_the_tests_that_the_page_names_are_there_and_run_with_upstreams_class_too() -> None:
    named = re.findall(r"``([\w/]+\.py)::(\w+)``", PAGE)
    assert len(named) > 8
    for file, test in named:
        source = (ROOT / file).read_text()
        assert re.search(rf"@both\([^\n]*\n(@[^\n]*\n)*def {test}\(", source), test
