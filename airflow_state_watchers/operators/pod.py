"""Pods that outlive their worker, found again by the next try."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowTaskTimeout

try:
    from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
except ImportError as error:
    raise ImportError(
        "Resumable pods need the Kubernetes provider. Install airflow-provider-state-watchers[cncf-kubernetes]."
    ) from error

from airflow_state_watchers.core.resume import JobPhase, OnClear
from airflow_state_watchers.exceptions import JobError, PodFailed
from airflow_state_watchers.operators.pod_calls import NO_ANSWER, passes, status_of
from airflow_state_watchers.operators.pod_hardening import HardenedSteps
from airflow_state_watchers.operators.pod_outcome import PodIdentifier, exit_of, identifier_of, outcome_of, phase_of
from airflow_state_watchers.operators.pod_session import PodSession, base_of
from airflow_state_watchers.operators.pod_watched import TakenAway
from airflow_state_watchers.operators.policies import Seconds
from airflow_state_watchers.operators.stopping import ToldToStop

if TYPE_CHECKING:
    from airflow.sdk import Context
    from kubernetes.client import models as k8s

T = TypeVar("T")


class PodResumeMixin(HardenedSteps):
    """One pod, one result, whatever dies.

    Before ``KubernetesPodOperator`` or a subclass of it: its pod is found again by uid, and everything else is as it was.
    Before ``BaseOperator``: write ``build_pod_request_obj(context)``, and call :meth:`execute_pod` from ``execute``.

    Policies are class attributes.

    ``on_clear``
        ``"rerun"``: a cleared task starts a new pod. ``"reuse"``: it takes up its old one, if :meth:`pod_identity` is the same.
    ``cancel_on_kill``
        Delete a pod that nobody waits for any more.
    ``max_pod_losses``
        How many pods in a row may be lost to the cluster, and started again, before the task fails.
    ``status_interval``
        Between two looks, in seconds or as a ``timedelta``.
    """

    on_clear: OnClear = "rerun"
    cancel_on_kill: bool = True
    max_pod_losses: int = 2
    status_interval: Seconds = 30

    if TYPE_CHECKING:
        log: Any
        build_pod_request_obj: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _check(cls)
        order = cls.__mro__
        if BaseOperator in order and order.index(BaseOperator) < order.index(PodResumeMixin):
            raise TypeError(
                f"class {cls.__name__}: an operator stands before PodResumeMixin, so its execute and on_kill win. Write "
                f"class {cls.__name__}(PodResumeMixin, ...)."
            )

    def pod_identity(self, request: k8s.V1Pod) -> Any:
        """What makes the request this request, as a mapping; digests of it are stored, with ``on_clear="reuse"`` alone."""
        return {"namespace": request.metadata.namespace, **request.spec.to_dict()}

    def execute(self, context: Context) -> Any:
        execute = super().execute  # type: ignore[misc]
        return self._in_session(context, lambda: execute(context))

    def execute_pod(self, context: Context) -> k8s.V1Pod:
        """Run the pod, or take up the one that an earlier try has started; follow its log; return it as it has ended.

        The pod is left where it is. Raises :class:`PodFailed` if it failed, :class:`PodLost` if too many were taken away.
        """
        return self._in_session(context, lambda: self._followed(self.build_pod_request_obj(context)))

    def _followed(self, request: k8s.V1Pod) -> k8s.V1Pod:
        session = self._pod_session
        assert session is not None
        pod = session.obtain(request)
        base = base_of(self, request)
        manager = session.manager()
        pod = session.until(manager, pod, lambda seen: seen.status.phase != "Pending")
        assert session.watched is not None
        if not session.watched.collected:
            manager.fetch_requested_container_logs(pod=pod, containers=base, follow_logs=True)
        pod = session.until(manager, pod, lambda seen: outcome_of(seen, base) is not None)
        if phase_of(pod, base) is JobPhase.FAILED:
            raise PodFailed(f"pod {identifier_of(pod)} has failed: exit code {exit_of(pod, base)}")
        return pod

    def _in_session(self, context: Context, step: Callable[[], T]) -> T:
        """Take the step, again after each loss and each time without an answer, and see to the pod if it is broken off."""
        self._pod_session = session = PodSession(self, context)
        try:
            return self._insisted(session, step)
        except ToldToStop:
            self._pod_session = None
            session.cancel_if_over()
            raise
        except AirflowTaskTimeout:
            self._pod_session = None
            session.cancel("execution_timeout is over")
            raise
        finally:
            self._pod_session = None
            vars(self).pop("pod_manager", None)

    def _insisted(self, session: PodSession, step: Callable[[], T]) -> T:
        missed: PodIdentifier | None = None
        while True:
            try:
                return step()
            except TakenAway as lost:
                self.log.warning("%s", lost)
            except NO_ANSWER as error:
                # A pod that is there and of which something else is not: no look at the pod will change that.
                pod = None if session.watched is None else session.watched.identifier
                if not passes(error) or (status_of(error) == 404 and missed == pod):
                    raise
                missed = pod
                self.log.warning("no answer from Kubernetes: %s. Waiting; the pod is not given up.", error)
                session.pause()
            vars(self).update(pod=None, remote_pod=None)

    def on_kill(self) -> None:
        """Leave the task. The pod is deleted only if the server says that this try is over."""
        if self._pod_session is not None:
            self._killed = True
            self._pod_session.stop.tell()

    def _pod_pause(self) -> float:
        interval = self.status_interval
        return interval.total_seconds() if isinstance(interval, timedelta) else float(interval)


def _check(cls: type[PodResumeMixin]) -> None:
    """Raise :class:`JobError` that names the policy that is wrong. What is a property is known of an instance alone."""
    for name, (is_right, wanted) in _POLICIES.items():
        value = getattr(cls, name)
        if not hasattr(value, "__get__") and not is_right(value):
            raise JobError(f"{cls.__name__}.{name} = {value!r}: give {wanted}")


def _is_duration(value: Any) -> bool:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    return isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and 0 < seconds < float("inf")


_POLICIES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "on_clear": (lambda value: value in ("rerun", "reuse"), "'rerun' or 'reuse'"),
    "cancel_on_kill": (lambda value: isinstance(value, bool), "True or False"),
    "max_pod_losses": (lambda value: type(value) is int and value >= 0, "a whole number of at least 0"),
    "status_interval": (_is_duration, "seconds or a timedelta above zero"),
}


class ResumablePodOperator(PodResumeMixin, KubernetesPodOperator):  # type: ignore[misc]
    """``KubernetesPodOperator`` whose pod is run once, found again, and run anew only if the cluster took it away.

    Every argument of ``KubernetesPodOperator``, and no other.
    """
