"""The steps of ``KubernetesPodOperator`` that :class:`PodResumeMixin` replaces. Everything else stays upstream's."""

from __future__ import annotations

import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.providers.cncf.kubernetes.kubernetes_helper_functions import KubernetesApiException
from airflow.sdk.exceptions import AirflowTaskTimeout
from kubernetes.client import ApiException

from airflow_state_watchers.core.resume import JobPhase
from airflow_state_watchers.exceptions import PodFailed
from airflow_state_watchers.operators.pod_calls import passes
from airflow_state_watchers.operators.pod_session import PodSession
from airflow_state_watchers.operators.pod_watched import TakenAway
from airflow_state_watchers.operators.stopping import ToldToStop

if TYPE_CHECKING:
    from airflow.sdk import Context
    from kubernetes.client import models as k8s

_NOT_THE_END = (TakenAway, ToldToStop, AirflowTaskTimeout)
"""Errors that say nothing of the pod's end, so that upstream's clean-up, which deletes it, is not for them."""


class HardenedSteps:
    """Written before ``KubernetesPodOperator``. Outside of a session, as in ``dry_run``, each step is upstream's."""

    _pod_session: PodSession | None = None

    if TYPE_CHECKING:
        log: Any
        pod: k8s.V1Pod
        do_xcom_push: bool
        extract_xcom: Any
        base_container_name: str
        _in_session: Any
        _pod_pause: Any

    @cached_property
    def pod_manager(self) -> Any:
        session = self._pod_session
        return super().pod_manager if session is None else session.manager()  # type: ignore[misc]

    def get_or_create_pod(self, pod_request_obj: k8s.V1Pod, context: Context) -> k8s.V1Pod:
        if self._pod_session is None:
            return super().get_or_create_pod(pod_request_obj, context)  # type: ignore[misc]
        return self._pod_session.obtain(pod_request_obj)

    def find_pod(self, namespace: str, context: Context, *, exclude_checked: bool = True) -> k8s.V1Pod | None:
        """Upstream asks for "the pod with these labels" to learn how its pod is, and fails if there are two."""
        session = self._pod_session
        if session is None or session.watched is None:
            return super().find_pod(namespace, context, exclude_checked=exclude_checked)  # type: ignore[misc]
        return self.pod_manager.read_pod(self.pod)

    def await_pod_completion(self, pod: k8s.V1Pod) -> None:
        if self._is_collected(pod):
            self.log.info("pod %s was seen to end and is gone, and what was left of its log with it", pod.metadata.name)
            return
        try:
            super().await_pod_completion(pod)  # type: ignore[misc]
        except ApiException as error:
            if self._pod_session is None or error.status != 403:
                raise
            # A log that may not be read is no reason to stop the work. If it is the pod that may not be read, this waits.
            self.log.warning("pod %s: no permission to read its log; going on without it", pod.metadata.name)
            self.pod_manager.await_container_completion(pod, self.base_container_name, self._pod_pause())

    def _is_collected(self, pod: k8s.V1Pod) -> bool:
        session = self._pod_session
        if session is None or session.watched is None:
            return False
        self.pod_manager.read_pod(pod)
        return session.watched.collected

    def patch_already_checked(self, pod: k8s.V1Pod, *, reraise: bool = True) -> None:
        if not self._is_collected(pod):
            super().patch_already_checked(pod, reraise=reraise)  # type: ignore[misc]

    def cleanup(self, *args: Any, **kwargs: Any) -> None:
        # Called in a finally: what is on its way up says why the try ends.
        error = sys.exc_info()[1]
        if self._pod_session is not None and (isinstance(error, _NOT_THE_END) or passes(error)):
            return
        super().cleanup(*args, **kwargs)  # type: ignore[misc]

    def trigger_reentry(self, context: Context, event: dict[str, Any]) -> Any:
        """Come back from the trigger. Its event names a pod by name alone; which one it is, is looked at here."""
        return self._in_session(context, lambda: self._reentered(context, event))

    def _reentered(self, context: Context, event: dict[str, Any]) -> Any:
        assert self._pod_session is not None
        look = self._pod_session.look_again()
        if look.phase is JobPhase.UNKNOWN and look.pod is None:
            raise KubernetesApiException(look.why)
        if look.phase is JobPhase.GONE:
            if event["status"] == "success" and not look.there and not self.do_xcom_push:
                return None  # The trigger has seen it end.
            self.log.warning("pod %s: %s", look.identifier, look.why)
            return super().execute(context)  # type: ignore[misc]
        if look.there:
            return super().trigger_reentry(context, event)  # type: ignore[misc]
        if look.phase is JobPhase.FAILED:
            raise PodFailed(f"pod {look.identifier}: {look.why}")
        return self.extract_xcom(pod=look.pod) if self.do_xcom_push else None
