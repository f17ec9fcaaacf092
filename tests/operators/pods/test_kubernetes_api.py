"""The fake against the official client: what the pod tests lean on."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Callable
from typing import Any

import kubernetes
import pytest
from kubernetes.client import ApiException, CoreV1Api, V1DeleteOptions, V1Pod
from kubernetes.stream import stream

from tests.operators.kubernetes_api import KubernetesApi
from tests.operators.kubernetes_cluster import SIDECAR


def pod(name: str | None = "one", *, containers: tuple[str, ...] = ("base",), **metadata: Any) -> V1Pod:
    spec = {"containers": [{"name": container, "image": "x"} for container in containers]}
    body: Any = {"metadata": {"name": name, **metadata}, "spec": spec}
    return body


def refusal(call: Callable[[], Any]) -> int:
    with pytest.raises(ApiException) as caught:
        call()
    return int(caught.value.status)


def test_it_says_that_it_is_a_fake(kube: KubernetesApi, core: CoreV1Api) -> None:
    with urllib.request.urlopen(f"{kube.url}/version") as answer:  # noqa: S310 - the fixture's own address
        assert answer.headers["X-Fake"] == "kubernetes pods of a test"
    assert kubernetes.client.VersionApi(core.api_client).get_code().git_version == "v1.30.0-fake"


def test_a_pod_has_a_uid_of_its_own_each_time(core: CoreV1Api) -> None:
    first = core.create_namespaced_pod("default", pod())
    assert first.status.phase == "Pending"
    assert refusal(lambda: core.create_namespaced_pod("default", pod())) == 409
    core.delete_namespaced_pod("one", "default")
    assert refusal(lambda: core.read_namespaced_pod("one", "default")) == 404
    assert core.create_namespaced_pod("default", pod()).metadata.uid != first.metadata.uid


def test_names_are_generated_and_checked(core: CoreV1Api) -> None:
    names = {core.create_namespaced_pod("default", pod(None, generateName="job-")).metadata.name for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("job-") for name in names)
    assert refusal(lambda: core.create_namespaced_pod("default", pod("Not_A_Name"))) == 422
    assert refusal(lambda: core.create_namespaced_pod("default", pod(labels={"a": "x" * 64}))) == 422


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("app=a", ["one"]),
        ("app==a,!old", ["one"]),
        ("app!=a", ["three", "two"]),
        ("app in (a, b),old", ["two"]),
        ("app notin (b)", ["one", "three"]),
        ("old", ["two"]),
    ],
)
def test_lists_follow_label_selectors(core: CoreV1Api, selector: str, found: list[str]) -> None:
    core.create_namespaced_pod("default", pod("one", labels={"app": "a"}))
    core.create_namespaced_pod("default", pod("two", labels={"app": "b", "old": "True"}))
    core.create_namespaced_pod("default", pod("three"))
    core.create_namespaced_pod("elsewhere", pod("one", labels={"app": "a"}))
    assert [one.metadata.name for one in core.list_namespaced_pod("default", label_selector=selector).items] == found


def test_fields_select_too_and_nonsense_is_refused(core: CoreV1Api) -> None:
    core.create_namespaced_pod("default", pod("one"))
    core.create_namespaced_pod("default", pod("two"))
    listed = core.list_namespaced_pod("default", field_selector="metadata.name=two")
    assert [one.metadata.name for one in listed.items] == ["two"]
    assert refusal(lambda: core.list_namespaced_pod("default", label_selector="a b c")) == 400


def test_a_deletion_may_name_the_uid_and_lets_a_running_pod_end_first(kube: KubernetesApi, core: CoreV1Api) -> None:
    made = core.create_namespaced_pod("default", pod())
    kube.cluster.run("one")
    other = V1DeleteOptions(preconditions={"uid": "another"})
    assert refusal(lambda: core.delete_namespaced_pod("one", "default", body=other)) == 409
    kube.pods.linger = True
    core.delete_namespaced_pod("one", "default", body=V1DeleteOptions(preconditions={"uid": made.metadata.uid}))
    assert core.read_namespaced_pod("one", "default").metadata.deletion_timestamp is not None
    kube.cluster.collect("one")
    assert refusal(lambda: core.read_namespaced_pod("one", "default")) == 404


def test_a_patch_of_an_older_version_is_refused(core: CoreV1Api) -> None:
    old = core.create_namespaced_pod("default", pod()).metadata.resource_version
    changed = core.patch_namespaced_pod("one", "default", {"metadata": {"labels": {"seen": "True"}}})
    assert changed.metadata.labels == {"seen": "True"}
    assert changed.metadata.resource_version != old
    late = {"metadata": {"resourceVersion": old, "labels": {"seen": None}}}
    assert refusal(lambda: core.patch_namespaced_pod("one", "default", late)) == 409


def test_a_watch_tells_every_change_to_the_last(kube: KubernetesApi, core: CoreV1Api) -> None:
    before = core.list_namespaced_pod("default").metadata.resource_version
    core.create_namespaced_pod("default", pod())
    kube.cluster.run("one")
    kube.cluster.finish("one")
    kube.cluster.collect("one")
    seen = []
    events = kubernetes.watch.Watch().stream(
        core.list_namespaced_pod, "default", resource_version=before, timeout_seconds=5
    )
    for event in events:
        seen.append((event["type"], event["object"].status.phase))
        if event["type"] == "DELETED":
            break
    assert seen == [("ADDED", "Pending"), ("MODIFIED", "Running"), ("MODIFIED", "Succeeded"), ("DELETED", "Succeeded")]


def test_a_watch_from_before_the_history_is_told_that_it_is_gone(kube: KubernetesApi, core: CoreV1Api) -> None:
    before = core.list_namespaced_pod("default").metadata.resource_version
    core.create_namespaced_pod("default", pod())
    kube.pods.compact()
    watch = kubernetes.watch.Watch()
    assert refusal(lambda: list(watch.stream(core.list_namespaced_pod, "default", resource_version=before))) == 410


def test_a_log_waits_for_its_container_and_is_followed_to_its_end(kube: KubernetesApi, core: CoreV1Api) -> None:
    core.create_namespaced_pod("default", pod())
    assert refusal(lambda: core.read_namespaced_pod_log("one", "default")) == 400
    kube.cluster.run("one")
    kube.cluster.say("one", "a", "b")
    answer = core.read_namespaced_pod_log("one", "default", follow=True, _preload_content=False)

    def end() -> None:
        kube.cluster.say("one", "c")
        kube.cluster.finish("one")

    later = threading.Thread(target=end)
    later.start()
    assert answer.read() == b"a\nb\nc\n"
    later.join()


def test_a_log_has_stamps_and_can_begin_later(kube: KubernetesApi, core: CoreV1Api) -> None:
    core.create_namespaced_pod("default", pod())
    kube.cluster.run("one")
    kube.cluster.say("one", "old", at=1_800_000_000_123_456_789)
    kube.cluster.say("one", "tail")
    stamped = core.read_namespaced_pod_log("one", "default", timestamps=True, _preload_content=False)
    assert stamped.read().splitlines()[0] == b"2027-01-15T08:00:00.123456789Z old"
    assert core.read_namespaced_pod_log("one", "default", tail_lines=1, _preload_content=False).read() == b"tail\n"
    later = f"{kube.url}/api/v1/namespaces/default/pods/one/log?sinceTime=2027-01-15T08:00:01Z"
    with urllib.request.urlopen(later) as answer:  # noqa: S310 - the fixture's own address
        assert answer.read() == b""


def test_an_eviction_is_a_marked_deletion_unless_a_budget_forbids_it(kube: KubernetesApi, core: CoreV1Api) -> None:
    core.create_namespaced_pod("default", pod())
    eviction: Any = {"metadata": {"name": "one"}}
    kube.pods.budget_blocks = True
    assert refusal(lambda: core.create_namespaced_pod_eviction("one", "default", eviction)) == 429
    kube.pods.budget_blocks = False
    core.create_namespaced_pod_eviction("one", "default", eviction)
    assert refusal(lambda: core.read_namespaced_pod("one", "default")) == 404
    *_, (_, kind, last) = kube.pods.history
    assert (kind, last["status"]["conditions"][0]["reason"]) == ("DELETED", "EvictionByEvictionAPI")


def test_a_lost_response_has_made_the_pod(kube: KubernetesApi, core: CoreV1Api) -> None:
    kube.fail("POST .*/pods$", lost=True)
    with pytest.raises(Exception, match=r"Connection aborted|without response"):
        core.create_namespaced_pod("default", pod())
    assert kube.cluster.names() == ["one"]
    kube.fail("GET .*/pods/one", 403)
    assert refusal(lambda: core.read_namespaced_pod("one", "default")) == 403
    assert core.read_namespaced_pod("one", "default").metadata.name == "one"


def test_the_sidecar_hands_out_what_the_container_left(kube: KubernetesApi, core: CoreV1Api) -> None:
    core.create_namespaced_pod("default", pod(containers=("base", SIDECAR)))
    kube.cluster.run("one")
    kube.cluster.write_xcom("one", '{"rows": "' + "7" * 300 + '"}')
    kube.cluster.finish("one")
    command = ["/bin/sh", "-c", "cat /airflow/xcom/return.json"]
    sidecar: dict[str, Any] = {"container": SIDECAR, "stdout": True, "stderr": True, "_preload_content": False}
    said = stream(core.connect_get_namespaced_pod_exec, "one", "default", command=command, stdin=False, **sidecar)
    said.run_forever()
    said.close()
    assert said.read_all() == '{"rows": "' + "7" * 300 + '"}'
    kill = stream(core.connect_get_namespaced_pod_exec, "one", "default", command=["/bin/sh"], stdin=True, **sidecar)
    kill.write_stdin("kill -2 1\n")
    kill.run_forever()
    kill.close()
    assert core.read_namespaced_pod("one", "default").status.phase == "Succeeded"
