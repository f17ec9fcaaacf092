"""What a task does about its pod, beyond the faults: policies, results, deferral, other operators."""

from __future__ import annotations

import threading
from typing import Any

import kubernetes
import pytest
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.providers.cncf.kubernetes.utils.pod_manager import XComRetrievalError
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException, AirflowTaskTimeout, TaskDeferred
from airflow.sdk.execution_time.context import NEVER_EXPIRE
from kubernetes.client import models as k8s

from airflow_state_watchers.exceptions import JobError, PodFailed
from airflow_state_watchers.operators.pod import PodResumeMixin, ResumablePodOperator
from airflow_state_watchers.operators.stopping import ToldToStop
from tests.operators.kubernetes_api import KubernetesApi
from tests.operators.kubernetes_cluster import SIDECAR
from tests.operators.pods.kubelet import CREATE, LOG, STATUS, finished, on
from tests.operators.pods.task import Death, Killed, Task

ARGUMENTS = {"image": "x", "namespace": "default", "startup_check_interval_seconds": 0}


class Resumable(ResumablePodOperator):
    status_interval = 0.05


class Reusing(Resumable):
    on_clear = "reuse"


class Keeping(Resumable):
    cancel_on_kill = False


class Plain(PodResumeMixin, BaseOperator):
    """An operator that is no ``KubernetesPodOperator``."""

    status_interval = 0.05

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.client = self.hook = "of another service"

    def build_pod_request_obj(self, context: Any) -> k8s.V1Pod:
        containers = [k8s.V1Container(name="main", image="x")]
        metadata = k8s.V1ObjectMeta(namespace="default", generate_name="plain-")
        return k8s.V1Pod(metadata=metadata, spec=k8s.V1PodSpec(containers=containers))

    def execute(self, context: Any) -> Any:
        return self.execute_pod(context).status.container_statuses[0].state.terminated.message


def work(operator: type = Resumable, **arguments: Any) -> Task:
    return Task(operator, arguments if issubclass(operator, Plain) else {**ARGUMENTS, **arguments})


def left_running(kube: KubernetesApi, task: Task) -> str:
    """Leave a running pod whose worker is dead; return its name."""
    on(kube, CREATE, kube.cluster.run)
    task.killed(Death(match=LOG))
    kube.on_done = None
    return kube.cluster.newest()


def test_what_is_stored_is_upstreams_with_the_uid_and_does_not_expire(kube: KubernetesApi) -> None:
    task = work()
    name = left_running(kube, task)
    uid = kube.pods.get("default", name)["metadata"]["uid"]
    assert task.store.values["pod_identifier"] == {"name": name, "namespace": "default", "uid": uid}
    assert task.store.retentions == {NEVER_EXPIRE}


def test_the_first_line_tells_token_and_decision(kube: KubernetesApi, capsys: pytest.CaptureFixture[str]) -> None:
    task = work()
    name = left_running(kube, task)
    on(kube, STATUS, kube.cluster.complete)
    task.run()
    token = kube.pods.created[0]["metadata"]["labels"]["state-watchers/token"]
    assert f"resumable: token={token}, decision=REATTACH, pod=default/{name}" in capsys.readouterr().out
    assert name == f"work-{token[:8]}"


@pytest.mark.parametrize(("first", "second"), [(KubernetesPodOperator, Resumable), (Resumable, KubernetesPodOperator)])
def test_a_task_changes_between_upstreams_class_and_ours(kube: KubernetesApi, first: type, second: type) -> None:
    task = work(first)
    left_running(kube, task)
    on(kube, STATUS, kube.cluster.complete)
    task.operator = second
    task.run()
    assert len(kube.pods.created) == 1


def test_upstreams_identifier_of_a_stranger_is_refused(kube: KubernetesApi) -> None:
    task = work(KubernetesPodOperator)
    name = left_running(kube, task)
    kube.cluster.collect(name)
    kube.cluster.reuse(name, owner="someone")
    on(kube, CREATE, finished(kube))
    task.operator = Resumable
    task.run()
    assert kube.cluster.names() == [name]


def test_a_clear_deletes_the_pod_that_still_runs_by_its_uid(kube: KubernetesApi) -> None:
    task = work()
    name = left_running(kube, task)
    uid = kube.pods.get("default", name)["metadata"]["uid"]
    task.clear()
    on(kube, CREATE, finished(kube))
    task.run()
    assert kube.pods.deleted[0] == uid
    assert len(kube.pods.created) == 2


def test_a_clear_of_a_pod_that_is_not_to_be_deleted_fails_and_names_it(kube: KubernetesApi) -> None:
    task = work(Keeping)
    name = left_running(kube, task)
    task.clear()
    with pytest.raises(JobError, match=f"pod default/{name} .* cancel_on_kill is False"):
        task.run()
    assert kube.cluster.names() == [name]


def test_a_clear_may_use_the_pod_again_if_the_request_is_the_same(kube: KubernetesApi) -> None:
    task = work(Reusing)
    left_running(kube, task)
    task.clear()
    on(kube, STATUS, kube.cluster.complete)
    task.run()
    assert len(kube.pods.created) == 1
    task.clear()
    task.arguments["image"] = "y"
    on(kube, CREATE, finished(kube))
    task.run()
    assert [pod["spec"]["containers"][0]["image"] for pod in kube.pods.created] == ["x", "y"]


def test_a_worker_that_was_cut_off_and_creates_late_creates_the_same_pod(kube: KubernetesApi) -> None:
    task = work()
    cut_off = task.build()
    with pytest.raises(Killed):
        task.run(Death(match=CREATE), operator=cut_off)
    late = kubernetes.client.ApiClient().sanitize_for_serialization(cut_off.pod_request_obj)

    def arrives(request: str) -> None:
        if request.startswith("POST") and not kube.pods.created:
            name = kube.pods.create("default", late)["metadata"]["name"]
            finished(kube)(name)

    kube.on_begin = arrives
    task.run()
    assert len(kube.pods.created) == 1


@pytest.mark.parametrize("operator", [Resumable, Plain])
def test_a_stop_during_the_creation_waits_until_the_uid_is_stored(kube: KubernetesApi, operator: type) -> None:
    task = work(operator)
    on(kube, CREATE, kube.cluster.run)
    built = task.build()
    with pytest.raises(ToldToStop):
        task.run(Death(match=CREATE, after=True, instead=built.on_kill), operator=built)
    (name,) = kube.cluster.names()
    assert task.store.values["pod_identifier"]["name"] == name


def test_a_kill_deletes_no_stranger(kube: KubernetesApi) -> None:
    task = work()
    on(kube, CREATE, kube.cluster.run)
    operator = task.build()

    def swapped_and_killed() -> None:
        name = kube.cluster.newest()
        kube.cluster.collect(name)
        kube.cluster.reuse(name, owner="someone")
        operator.on_kill()

    task.state = "failed"
    with pytest.raises(ToldToStop):
        task.run(Death(match=LOG, after=True, instead=swapped_and_killed), operator=operator)
    assert kube.asked("DELETE")
    assert len(kube.cluster.names()) == 1


def test_a_time_out_ends_the_pod_and_does_not_count_as_a_loss(kube: KubernetesApi) -> None:
    def out_of_time() -> None:
        raise AirflowTaskTimeout

    task = work()
    on(kube, CREATE, kube.cluster.run)
    with pytest.raises(AirflowTaskTimeout):
        task.run(Death(match=LOG, after=True, instead=out_of_time))
    assert kube.cluster.names() == []
    on(kube, CREATE, finished(kube))
    task.run()
    assert task.store.values["pod_identifier.resume"]["resubmits"] == 0


def test_an_end_is_stored_when_it_is_first_seen(kube: KubernetesApi) -> None:
    task = work()
    name = left_running(kube, task)
    kube.cluster.complete(name)
    task.killed(Death(match="set pod_identifier.outcome", after=True))
    kube.cluster.collect(name)
    task.run()
    assert len(kube.pods.created) == 1


def test_an_exit_code_that_skips_does_so_after_a_reconnect(kube: KubernetesApi) -> None:
    task = work(skip_on_exit_code=99)
    name = left_running(kube, task)
    kube.cluster.complete(name, code=99)
    with pytest.raises(AirflowSkipException):
        task.run()
    assert len(kube.pods.created) == 1


def test_an_xcom_that_nobody_can_fetch_any_more_is_an_error_and_no_second_pod(kube: KubernetesApi) -> None:
    task = work(do_xcom_push=True)
    name = left_running(kube, task)
    kube.cluster.complete(name)
    with pytest.raises(XComRetrievalError, match="ended before its XCom was fetched"):
        task.run()
    assert len(kube.pods.created) == 1


def test_the_sidecar_stays_while_the_xcom_cannot_be_stored(kube: KubernetesApi) -> None:
    task = work(do_xcom_push=True)
    on(kube, CREATE, finished(kube, xcom="7"))
    keep = task.store.set
    failed: list[str] = []

    def refuse(key: str, value: Any, **retention: Any) -> None:
        if key.endswith(".xcom") and not failed:
            failed.append(key)
            raise OSError("no answer from the API server")
        keep(key, value, **retention)

    task.store.set = refuse  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no answer"):
        task.run()
    assert failed
    assert not kube.asked(f"exec.*{SIDECAR}.*kill")


def test_a_pod_on_a_node_that_does_not_answer_is_waited_for(kube: KubernetesApi) -> None:
    task = work()
    name = left_running(kube, task)
    kube.cluster.lose_node(name)
    kube.fail(LOG, 500, times=12)

    def back(_: str) -> None:
        if not any(fault.times for fault in kube.faults):
            kube.cluster.complete(name)

    on(kube, STATUS, *[back] * 100)
    task.run()
    assert len(kube.pods.created) == 1


def test_a_plain_operator_gets_the_pod_as_it_ended(kube: KubernetesApi) -> None:
    def ends(name: str) -> None:
        kube.cluster.run(name)
        kube.cluster.finish(name, container="main", message="42 rows")

    on(kube, CREATE, ends)
    task = work(Plain)
    assert task.run() == "42 rows"
    kube.cluster.collect(kube.cluster.newest())
    assert task.run() == "42 rows"
    assert len(kube.pods.created) == 1


def test_a_plain_operator_keeps_its_own_client(kube: KubernetesApi) -> None:
    kube.fail(STATUS, 503, times=2)

    def ends(name: str) -> None:
        kube.cluster.run(name)
        kube.cluster.finish(name, container="main")

    on(kube, CREATE, ends)
    task = work(Plain)
    operator = task.build()
    task.run(operator=operator)
    assert operator.client == operator.hook == "of another service"


def test_a_plain_operator_sees_an_end_that_is_collected_at_once(kube: KubernetesApi) -> None:
    def ends(request: str) -> None:
        if "watch=True" in request and kube.cluster.names():
            threading.Thread(target=end, daemon=True).start()

    def end() -> None:
        name = kube.cluster.newest()
        with kube.pods.changed:
            kube.cluster.run(name)
            kube.cluster.finish(name, container="main", message="42 rows")
            kube.cluster.collect(name)

    kube.on_begin = ends
    assert work(Plain).run() == "42 rows"
    assert len(kube.pods.created) == 1


def test_a_plain_operators_pod_fails_or_is_lost_as_any(kube: KubernetesApi) -> None:
    def fails(name: str) -> None:
        kube.cluster.run(name)
        kube.cluster.finish(name, container="main", code=2)

    def drained(name: str) -> None:
        kube.cluster.run(name)
        kube.cluster.drain(name)

    on(kube, CREATE, drained, fails)
    with pytest.raises(PodFailed, match="exit code 2"):
        work(Plain).run()
    assert len(kube.pods.created) == 2


def test_a_log_that_may_not_be_read_does_not_end_the_work(kube: KubernetesApi) -> None:
    kube.fail(LOG, 403, times=100)
    on(kube, CREATE, kube.cluster.run)
    looks: list[str] = []

    def later(name: str) -> None:
        looks.append(name)
        if len(looks) == 8:
            kube.cluster.complete(name)

    task = work()
    create, kube.on_done = kube.on_done, None
    on(kube, STATUS, *[later] * 100)
    status = kube.on_done

    def done(request: str) -> None:
        for each in (create, status):
            assert each is not None
            each(request)

    kube.on_done = done
    task.run()
    assert len(kube.pods.created) == 1
    assert len(looks) > 8


def test_without_durable_a_pod_is_not_left_to_a_try_that_will_not_come_for_it(kube: KubernetesApi) -> None:
    task = work(durable=False)
    on(kube, CREATE, kube.cluster.run)
    operator = task.build()
    with pytest.raises(ToldToStop):
        task.run(Death(match=LOG, after=True, instead=operator.on_kill), operator=operator)
    assert kube.cluster.names() == []
    assert task.store.values == {}


@pytest.mark.parametrize("wrong", [{"on_clear": "again"}, {"max_pod_losses": -1}, {"status_interval": 0}])
def test_a_policy_that_is_wrong_is_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(JobError, match=f"Wrong.{next(iter(wrong))} = .*: give "):
        type("Wrong", (ResumablePodOperator,), wrong)


def test_a_pod_that_is_evicted_once_its_work_is_done_has_done_it(kube: KubernetesApi) -> None:
    def evicted(name: str) -> None:
        kube.cluster.run(name)
        kube.cluster.evict(name, ended=0)

    on(kube, CREATE, evicted)
    work().run()
    assert len(kube.pods.created) == 1


def test_without_permission_to_watch_it_looks(kube: KubernetesApi) -> None:
    kube.fail("watch=True", 403, times=100)
    on(kube, CREATE, lambda _: None)
    looks: list[str] = []

    def later(name: str) -> None:
        looks.append(name)
        if len(looks) == 3:
            kube.cluster.run(name)
            kube.cluster.finish(name, container="main", message="42 rows")

    on(kube, STATUS, *[later] * 100)
    assert work(Plain).run() == "42 rows"


def test_bases_in_the_wrong_order_are_refused_at_once() -> None:
    with pytest.raises(TypeError, match=r"Write class Wrong\(PodResumeMixin, ...\)"):

        class Wrong(KubernetesPodOperator, PodResumeMixin):
            pass


class TestDeferred:
    def deferred(self, kube: KubernetesApi, task: Task) -> str:
        on(kube, CREATE, kube.cluster.run)
        with pytest.raises(TaskDeferred):
            task.run()
        kube.on_done = None
        return kube.cluster.newest()

    def back(self, task: Task, name: str, status: str = "success") -> Any:
        event = {"status": status, "name": name, "namespace": "default", "message": status}
        return task.call(task.build(), "trigger_reentry", event=event)

    def test_the_result_is_as_without(self, kube: KubernetesApi) -> None:
        task = work(deferrable=True, do_xcom_push=True)
        name = self.deferred(kube, task)
        kube.cluster.write_xcom(name, "7")
        kube.cluster.finish(name)
        assert self.back(task, name) == 7

    def test_a_pod_lost_meanwhile_is_run_again(self, kube: KubernetesApi) -> None:
        task = work(deferrable=True)
        name = self.deferred(kube, task)
        kube.cluster.drain(name)
        on(kube, CREATE, kube.cluster.run)
        with pytest.raises(TaskDeferred):
            self.back(task, name, "failed")
        assert len(kube.pods.created) == 2

    def test_a_stranger_under_the_name_is_not_taken_for_it(self, kube: KubernetesApi) -> None:
        task = work(deferrable=True, get_logs=False)
        name = self.deferred(kube, task)
        kube.cluster.collect(name)
        kube.cluster.reuse(name, owner="someone")
        finished(kube)(name)
        on(kube, CREATE, kube.cluster.run)
        with pytest.raises(TaskDeferred):
            self.back(task, name, "failed")
        assert name in kube.cluster.names()
        assert len(kube.pods.created) == 3
