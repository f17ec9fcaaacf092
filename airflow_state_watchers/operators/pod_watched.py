"""The pod that a try goes by: every look at it passes here, whoever asked, so that what is seen is remembered at once."""

from __future__ import annotations

from collections.abc import Callable

from kubernetes.client import ApiException
from kubernetes.client import models as k8s

from airflow_state_watchers.operators.pod_calls import NO_ANSWER, PodCalls
from airflow_state_watchers.operators.pod_memory import PodMemory
from airflow_state_watchers.operators.pod_outcome import identifier_of, loss_of, outcome_of
from airflow_state_watchers.operators.stopping import Stop


class TakenAway(Exception):
    """The pod is no more, or will not go on, and its end says nothing of its work: another look decides what follows."""


class WatchedPod:
    """One pod, by its uid. ``collected`` says that it ended, that this was seen, and that its object is no more."""

    def __init__(self, pod: k8s.V1Pod, memory: PodMemory, calls: PodCalls, base: str, stop: Stop) -> None:
        self.identifier = identifier_of(pod)
        self.collected = False
        self._last = pod
        self._memory = memory
        self._calls = calls
        self._base = base
        self._stop = stop
        self._outcome = memory.outcome(self.identifier)

    def read(self, ask: Callable[[], k8s.V1Pod]) -> k8s.V1Pod:
        """Look at the pod. Raises :class:`TakenAway` if it was taken away, or its name is another pod's by now."""
        self._stop.check()
        try:
            pod = ask()
        except ApiException as error:
            if error.status != 404:
                raise
            return self.missing("it is gone, and was not seen to end")
        if pod.metadata.uid != self.identifier.uid:
            return self.missing(f"it is gone, and its name is that of another pod now (uid {pod.metadata.uid})")
        return self.see(pod)

    def see(self, pod: k8s.V1Pod) -> k8s.V1Pod:
        """Take in one look at this pod."""
        if why := loss_of(pod, self._base):
            raise TakenAway(f"pod {self.identifier}: taken away ({why}), so that its end says nothing of its work")
        self._last = pod
        outcome = outcome_of(pod, self._base)
        if outcome is not None and outcome != self._outcome:
            self._memory.remember_outcome(outcome)
            self._outcome = outcome
        if outcome is not None and pod.status.phase == "Failed" and outcome.phase == "Succeeded":
            return outcome.as_pod(self._base)
        return pod

    def missing(self, why: str) -> k8s.V1Pod:
        """The pod is not there: return it as it ended, if that was ever seen."""
        if self._outcome is None:
            self._recall()
        if self._outcome is None:
            raise TakenAway(f"pod {self.identifier}: {why}")
        self.collected = True
        return self._outcome.as_pod(self._base)

    def _recall(self) -> None:
        """Ask for the changes since the last look, of which the API server keeps those of some minutes: how did it end?"""
        if self._last.metadata.resource_version is None:
            return
        try:
            for _, changed in self._calls.changes(self._last, seconds=1):
                self.see(changed)
        except NO_ANSWER:
            return  # Not allowed, or too long ago.

    def xcom(self) -> str | None:
        """The text that was fetched from the XCom sidecar, by this try or an earlier one."""
        return self._memory.xcom(self.identifier)

    def remember_xcom(self, text: str) -> None:
        self._memory.remember_xcom(self.identifier, text)
