"""Each fault of pods seen in the field. Where upstream's operator has it, the same test fails with upstream's class."""

from __future__ import annotations

import re
from typing import Any

import pytest
from airflow.providers.cncf.kubernetes.operators.pod import FoundMoreThanOnePodFailure, KubernetesPodOperator
from airflow.sdk.exceptions import AirflowException
from kubernetes.client import ApiException

from airflow_state_watchers.exceptions import JobError, PodLost
from airflow_state_watchers.operators.pod import ResumablePodOperator
from airflow_state_watchers.operators.stopping import ToldToStop
from tests.operators.kubernetes_api import KubernetesApi
from tests.operators.pods.kubelet import CREATE, LOG, STATUS, Step, finished, on
from tests.operators.pods.task import Death, Killed, Task


class Resumable(ResumablePodOperator):
    status_interval = 0.05


def both(why: str, raises: type[BaseException]) -> pytest.MarkDecorator:
    """Run with upstream's class too, which must fail by this error, for this reason."""
    upstream = pytest.param(KubernetesPodOperator, id="upstream", marks=pytest.mark.xfail(reason=why, raises=raises))
    return pytest.mark.parametrize("operator", [pytest.param(Resumable, id="ours"), upstream])


def work(operator: type, **arguments: Any) -> Task:
    return Task(operator, {"image": "x", "namespace": "default", "startup_check_interval_seconds": 0, **arguments})


def started_and_killed(kube: KubernetesApi, task: Task) -> str:
    """Leave a running pod whose worker is dead; return its name."""
    on(kube, CREATE, kube.cluster.run)
    task.killed(Death(match=LOG))
    kube.on_done = None
    (name,) = kube.cluster.names()
    return name


@both("it fails: More than one pod running with labels", FoundMoreThanOnePodFailure)
def test_more_than_one_found(kube: KubernetesApi, operator: type) -> None:
    task = work(operator)
    on(kube, CREATE, kube.cluster.run)
    task.killed(Death(match=CREATE, after=True))
    (first,) = kube.cluster.names()
    labels = kube.pods.get("default", first)["metadata"]["labels"]
    labels = {key: value for key, value in labels.items() if key != "state-watchers/token"}
    kube.cluster.reuse("another", **labels)
    on(kube, STATUS, lambda _: kube.cluster.complete(first))
    task.run()
    assert kube.cluster.names() == ["another"]
    assert len(kube.asked(CREATE)) == 1


@both("it fails: More than one pod running with labels", FoundMoreThanOnePodFailure)
def test_two_of_which_nothing_is_stored(kube: KubernetesApi, operator: type) -> None:
    task = work(operator)
    name = started_and_killed(kube, task)
    labels = kube.pods.get("default", name)["metadata"]["labels"]
    kube.cluster.reuse("a-younger", **labels)
    task.store.values.clear()
    on(kube, STATUS, lambda _: kube.cluster.complete(name))
    task.run()
    assert len(kube.asked(CREATE)) == 1
    assert kube.cluster.names() == ["a-younger"]


@both("it takes the stranger's success for its own, and deletes it", pytest.fail.Exception)
def test_the_name_is_reused(kube: KubernetesApi, operator: type) -> None:
    task = work(operator, name="fixed", random_name_suffix=False)
    name = started_and_killed(kube, task)
    kube.cluster.collect(name)
    stranger = kube.cluster.reuse(name, owner="someone", try_number="0")
    finished(kube)(name)
    on(kube, CREATE, finished(kube), finished(kube))
    with pytest.raises(JobError, match=r"default/fixed: the name is taken by a pod that this task did not start"):
        task.run()
    assert kube.pods.get("default", name)["metadata"]["uid"] == stranger["metadata"]["uid"]
    kube.cluster.collect(name)
    task.run()


@both("it takes the stranger's success for its own, and deletes it", AssertionError)
def test_the_name_is_reused_while_the_pod_is_followed(kube: KubernetesApi, operator: type) -> None:
    def swapped(name: str) -> None:
        kube.cluster.collect(name)
        kube.cluster.reuse(name, owner="someone", try_number="0")
        finished(kube)(name)

    on(kube, f"{CREATE}|{STATUS}", kube.cluster.run, lambda _: None, lambda _: None, swapped, *[lambda _: None] * 99)
    also_on_create(kube, finished(kube))
    work(operator).run()
    left = [kube.pods.get("default", name)["metadata"]["labels"] for name in kube.cluster.names()]
    assert [labels["owner"] for labels in left] == ["someone"]


def also_on_create(kube: KubernetesApi, step: Step) -> None:
    """Finish what is created after the first pod."""
    before = kube.on_done
    seen: list[str] = []
    assert before is not None

    def done(request: str) -> None:
        seen.extend(re.findall(CREATE, request))
        if re.search(CREATE, request) and len(seen) > 1:
            step(kube.cluster.newest())
        else:
            before(request)

    kube.on_done = done


@both("it fails the try: Pod returned a failure", AirflowException)
def test_evicted(kube: KubernetesApi, operator: type) -> None:
    def evicted(name: str) -> None:
        kube.cluster.run(name)
        kube.cluster.evict(name)

    on(kube, CREATE, evicted, finished(kube))
    work(operator).run()
    assert len(kube.asked(CREATE)) == 2


@pytest.mark.parametrize("how", ["drain", "preempt", "collect"])
@both("it fails the try: 404", ApiException)
def test_a_drained_node(kube: KubernetesApi, operator: type, how: str) -> None:
    def drained(name: str) -> None:
        kube.cluster.run(name)
        getattr(kube.cluster, how)(name)

    on(kube, CREATE, drained, finished(kube))
    work(operator).run()
    assert len(kube.asked(CREATE)) == 2


def test_a_node_that_shuts_down_or_is_lost(kube: KubernetesApi) -> None:
    def shut_down(name: str) -> None:
        kube.cluster.run(name)
        kube.cluster.shut_down(name)

    def lost(name: str) -> None:
        kube.cluster.run(name)
        kube.cluster.lose_node(name, collected=True)

    on(kube, CREATE, shut_down, lost, finished(kube))
    work(Resumable).run()
    assert len(kube.asked(CREATE)) == 3


def test_losses_are_bounded_and_counted_over_tries(kube: KubernetesApi) -> None:
    def evicted(name: str) -> None:
        kube.cluster.run(name)
        kube.cluster.evict(name)

    task = work(Resumable)
    on(kube, CREATE, evicted, evicted, evicted, finished(kube))
    with pytest.raises(PodLost, match=r"Evicted.*max_pod_losses=2 pods were started again already"):
        task.run()
    assert len(kube.asked(CREATE)) == 3
    with pytest.raises(PodLost):
        task.run()
    assert len(kube.asked(CREATE)) == 3
    task.clear()
    task.run()
    assert len(kube.asked(CREATE)) == 4


@both("it fails the try: 404", ApiException)
def test_collected_as_soon_as_it_has_ended(kube: KubernetesApi, operator: type) -> None:
    task = work(operator)

    def collected(name: str) -> None:
        kube.cluster.collect(name)

    on(kube, f"{CREATE}|{LOG}|{STATUS}", finished(kube), lambda _: None, lambda _: None, collected)
    task.run()
    assert len(kube.asked(CREATE)) == 1


@both("it fails the try: 404", ApiException)
def test_collected_before_anyone_looked(kube: KubernetesApi, operator: type) -> None:
    def gone(name: str) -> None:
        finished(kube)(name)
        kube.cluster.collect(name)

    task = work(operator)
    on(kube, CREATE, gone)
    task.run()
    assert len(kube.asked(CREATE)) == 1


@both("it runs a second pod", AssertionError)
def test_collected_after_success_and_before_the_next_try(kube: KubernetesApi, operator: type) -> None:
    task = work(operator, do_xcom_push=True)

    ended = finished(kube, xcom='{"rows": 7}')
    on(kube, CREATE, ended, ended)
    task.killed(Death(match="DELETE"))
    (name,) = kube.cluster.names()
    kube.cluster.collect(name)
    assert task.run() == {"rows": 7}
    assert task.xcoms == {"pod_name": name, "pod_namespace": "default"}
    assert len(kube.asked(CREATE)) == 1


@both("on_kill finds no pod to delete, since none was returned yet", AssertionError)
def test_running_on_after_mark_failed(kube: KubernetesApi, operator: type) -> None:
    task = work(operator)
    on(kube, CREATE, kube.cluster.run)
    task.state = "failed"
    stopped(task, at=CREATE)
    assert kube.cluster.names() == []


@both("it deletes the pod, though the next try would have gone on with it", ApiException)
@pytest.mark.parametrize("state", ["running", "up_for_retry", RuntimeError("no answer")])
def test_a_worker_that_is_shut_down_leaves_its_pod(kube: KubernetesApi, operator: type, state: Any) -> None:
    task = work(operator)
    on(kube, CREATE, kube.cluster.run)
    task.state = state
    stopped(task, at=LOG)
    (name,) = kube.cluster.names()
    on(kube, STATUS, lambda _: kube.cluster.complete(name))
    task.run()
    assert len(kube.asked(CREATE)) == 1


def stopped(task: Task, *, at: str) -> None:
    """SIGTERM during a request, and SIGKILL if the task goes on all the same."""
    operator = task.build()
    death = Death(match=at, after=True, instead=operator.on_kill)
    with pytest.raises((ToldToStop, Killed)):
        task.run(death, operator=operator)


@both("it goes on with the pod of before the clear", AssertionError)
def test_a_clear_runs_again(kube: KubernetesApi, operator: type) -> None:
    task = work(operator)
    old = started_and_killed(kube, task)
    task.clear()
    looks = 0

    def done(request: str) -> None:
        nonlocal looks
        looks += request.endswith(f"/pods/{old}")
        if re.search(CREATE, request):
            finished(kube)(kube.cluster.names()[0])
        elif looks == 3 and old in kube.cluster.names():
            kube.cluster.complete(old)

    kube.on_done = done
    task.run()
    assert len(kube.asked(CREATE)) == 2


@both("it shows the log from its beginning again", AssertionError)
def test_a_log_is_shown_once(kube: KubernetesApi, operator: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_state_watchers.operators.pod_manager.SAVE_EVERY", 0)
    shown: list[str] = []

    def show(_: str, line: str) -> str:
        if line.strip() == "three" and task.try_number == 1:
            task.store.death.die()
        shown.append(line.strip())
        return line

    task = work(operator, log_formatter=show)

    def speaks(name: str) -> None:
        kube.cluster.run(name)
        kube.cluster.say(name, "one", "two", "three", "four")

    on(kube, CREATE, speaks)
    task.killed(Death())
    assert shown == ["one", "two"]
    (name,) = kube.cluster.names()

    def ends(_: str) -> None:
        kube.cluster.say(name, "five")
        kube.cluster.complete(name)

    on(kube, STATUS, ends)
    task.run()
    assert shown == ["one", "two", "three", "four", "five"]


def test_no_answer_is_not_the_end(kube: KubernetesApi) -> None:
    task = work(Resumable)
    name = started_and_killed(kube, task)
    for code in (403, 500, 503, 401):
        kube.fail(STATUS, code)
    kube.fail(STATUS, lost=True)
    on(kube, STATUS, lambda _: kube.cluster.complete(name))
    task.run()
    assert len(kube.asked(CREATE)) == 1


def test_a_creation_that_was_not_answered_is_sent_once_more_and_made_once(kube: KubernetesApi) -> None:
    kube.fail(CREATE, lost=True)
    on(kube, CREATE, finished(kube))
    work(Resumable).run()
    assert len(kube.pods.created) == 1


def test_a_refused_creation_is_the_error_of_the_try(kube: KubernetesApi) -> None:
    kube.fail(CREATE, 403)
    with pytest.raises(JobError, match=r"cannot be created.*403"):
        work(Resumable).run()


def test_a_pod_that_fails_by_itself_fails_the_try_and_the_next_has_its_own(kube: KubernetesApi) -> None:
    task = work(Resumable)
    on(kube, CREATE, finished(kube, code=3), finished(kube))
    with pytest.raises(AirflowException, match="returned a failure"):
        task.run()
    task.run()
    tokens = {pod["metadata"]["labels"]["state-watchers/token"] for pod in kube.pods.created}
    assert len(tokens) == len(kube.pods.created) == 2
