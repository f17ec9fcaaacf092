"""What one call of an operator's ``execute`` needs for its pod, put together."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from kubernetes.client import models as k8s

from airflow_state_watchers.core.resume import id_of
from airflow_state_watchers.operators.pod_calls import NO_ANSWER, TOKEN_LABEL, PodCalls
from airflow_state_watchers.operators.pod_look import NOTHING, PodFinder, PodLook
from airflow_state_watchers.operators.pod_manager import CarefulPodManager, ResumingPodManager, ShownLog
from airflow_state_watchers.operators.pod_memory import PodMemory
from airflow_state_watchers.operators.pod_outcome import PodIdentifier, identifier_of
from airflow_state_watchers.operators.pod_run import PodRun
from airflow_state_watchers.operators.pod_watched import WatchedPod
from airflow_state_watchers.operators.stopping import Stop, is_over

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_state_watchers.operators.pod import PodResumeMixin

_LONGEST_WATCH = 30
"""Seconds. The hook's client ends a request that takes longer than a minute."""
_RENEWED = ("client", "hook", "pod_manager")


def base_of(operator: Any, request: k8s.V1Pod) -> str:
    """The container whose end is the pod's."""
    return str(getattr(operator, "base_container_name", None) or request.spec.containers[0].name)


class NoStore:
    """Stands in where nothing is stored: with ``durable=False``, or outside of a task."""

    def __init__(self) -> None:
        self._held: dict[str, Any] = {}

    def get(self, key: str, default: Any = None) -> Any:
        return self._held.get(key, default)

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        self._held[key] = value


class PodSession:
    def __init__(self, operator: PodResumeMixin, context: Context) -> None:
        store = context.get("task_state_store") if getattr(operator, "durable", True) else None
        self.stop = Stop()
        self.watched: WatchedPod | None = None
        self._operator, self._context, self._ti = operator, context, context["ti"]
        self._durable = store is not None
        self._memory = PodMemory(NoStore() if store is None else store)
        self._calls = PodCalls(self._client)
        self._run = PodRun(operator, self._ti, self._memory, self._calls, self.stop, self.pause)
        self._own_client: Any = None
        self._base = ""
        self._namespace: str | None = None

    def _client(self) -> Any:
        operator: Any = self._operator
        if isinstance(operator, KubernetesPodOperator):
            return operator.client
        if self._own_client is None:
            connection = getattr(operator, "kubernetes_conn_id", KubernetesHook.default_conn_name)
            self._own_client = KubernetesHook(conn_id=connection).core_v1_client
        return self._own_client

    def obtain(self, request: k8s.V1Pod) -> k8s.V1Pod:
        """Return the pod that this try goes by, from now on watched."""
        self.watched = None
        self._base, self._namespace = base_of(self._operator, request), request.metadata.namespace
        pod = self._run.obtain(request, self._finder(request.metadata.namespace))
        self._watch(pod)
        return pod

    def look_again(self) -> PodLook:
        """Look at the pod of this try, which was started before the task was deferred; watched from now on if it is there."""
        self._base = self._operator.base_container_name
        record, stored = self._memory.load()
        external_id = id_of(record, stored)
        if external_id is None:
            return NOTHING
        identifier = self._memory.identifier(external_id)
        look = self._finder(identifier.namespace).look(identifier, record)
        if look.pod is not None:
            self._watch(look.pod)
        return look

    def _watch(self, pod: k8s.V1Pod) -> None:
        self.watched = WatchedPod(pod, self._memory, self._calls, self._base, self.stop)
        vars(self._operator).pop("pod_manager", None)

    def _finder(self, namespace: str) -> PodFinder:
        operator: Any = self._operator
        by_labels = self._durable and hasattr(operator, "_build_find_pod_label_selector")
        return PodFinder(
            self._calls,
            self._memory,
            namespace=namespace,
            base=self._base,
            skips=getattr(operator, "skip_on_exit_code", ()),
            labels=operator._build_find_pod_label_selector(self._context) if by_labels else None,
            log=operator.log,
        )

    def manager(self) -> CarefulPodManager:
        """The provider's pod manager: for the watched pod, or before there is one for deleting an older one."""
        callbacks = getattr(self._operator, "callbacks", [])
        if self.watched is None:
            return CarefulPodManager(calls=self._calls, kube_client=self._client(), callbacks=callbacks)
        log = ShownLog(self._memory, self.watched.identifier, self.stop)
        return ResumingPodManager(
            watched=self.watched, log=log, calls=self._calls, kube_client=self._client(), callbacks=callbacks
        )

    def until(self, manager: CarefulPodManager, pod: k8s.V1Pod, done: Callable[[k8s.V1Pod], bool]) -> k8s.V1Pod:
        """Wait until the pod is as asked; a change is seen when it happens, and at the latest each ``status_interval``."""
        pod = manager.read_pod(pod)
        while not done(pod):
            pod = self._changed(pod) or manager.read_pod(pod)
        return pod

    def _changed(self, pod: k8s.V1Pod) -> k8s.V1Pod | None:
        assert self.watched is not None
        self.stop.check()
        seconds = min(max(1, int(self._operator._pod_pause())), _LONGEST_WATCH)
        try:
            for gone, changed in self._calls.changes(pod, seconds=seconds):
                seen = self.watched.see(changed)
                return self.watched.missing("it was deleted") if gone else seen
        except NO_ANSWER:
            # Not allowed, or from before the history that is kept: then by looks alone.
            self.pause()
        return None

    def pause(self, longest: float = float("inf")) -> None:
        """Between two looks. What comes after asks with a new client, in case credentials have expired."""
        self.stop.check()
        time.sleep(min(self._operator._pod_pause(), longest))
        self._own_client = None
        if isinstance(self._operator, KubernetesPodOperator):
            for name in _RENEWED:
                vars(self._operator).pop(name, None)

    def cancel_if_over(self) -> None:
        """After being told to stop: delete the pod if the server says that nobody will come for it."""
        # With nothing stored no try comes for it, whatever the server says.
        over = is_over(self._ti, on_clear=self._operator.on_clear) if self._durable else True
        if over:
            self.cancel("told to stop, and no later try goes on with this pod")
        else:
            why = "the server did not say whether this try is over" if over is None else "a later try goes on with it"
            self._operator.log.info("told to stop; the pod is left running: %s", why)

    def cancel(self, why: str) -> None:
        action = getattr(self._operator, "on_kill_action", "delete_pod")
        pod = self._current()
        if pod is None:
            return
        if not self._operator.cancel_on_kill or action == "keep_pod":
            self._operator.log.warning("%s; pod %s is left running: it is not to be deleted", why, pod)
            return
        self._operator.log.info("%s", why)
        self._run.cancel(pod)

    def _current(self) -> PodIdentifier | None:
        """This try's pod, even where the answer to its creation never came."""
        if self.watched is not None:
            return self.watched.identifier
        record, stored = self._memory.load()
        external_id = id_of(record, stored)
        if external_id is not None:
            return self._memory.identifier(external_id)
        if record is None or self._namespace is None:
            return None
        found = self._calls.find(self._namespace, f"{TOKEN_LABEL}={record.token}")
        return identifier_of(found[0]) if found else None
