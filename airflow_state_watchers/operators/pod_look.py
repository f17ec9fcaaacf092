"""One look at a task's pod: by its uid, by the token where no uid was stored, by the task's labels where nothing was."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any

from kubernetes.client import models as k8s

from airflow_state_watchers.core.resume import JobPhase, JobRecord
from airflow_state_watchers.operators.pod_calls import NO_ANSWER, TOKEN_LABEL, PodCalls
from airflow_state_watchers.operators.pod_memory import PodMemory
from airflow_state_watchers.operators.pod_outcome import (
    CANCELLED,
    PodIdentifier,
    exit_of,
    identifier_of,
    loss_of,
    outcome_of,
    phase_of,
)


@dataclass(frozen=True, slots=True)
class PodLook:
    """What a look has shown. ``pod`` is as the API server has it, or as it ended if it is no more; ``there`` says which."""

    phase: JobPhase
    why: str
    identifier: PodIdentifier | None = None
    pod: k8s.V1Pod | None = None
    there: bool = False


NOTHING = PodLook(JobPhase.GONE, "nothing is stored of a pod")


class PodFinder:
    """``base`` is the container whose end is the pod's, and an exit code of it in ``skips`` is no failure.

    ``labels`` is the selector for pods of this task, if it has one.
    """

    def __init__(
        self,
        calls: PodCalls,
        memory: PodMemory,
        *,
        namespace: str,
        base: str,
        skips: Container[int],
        labels: str | None,
        log: Any,
    ) -> None:
        self._calls = calls
        self._skips = skips
        self._memory = memory
        self._namespace = namespace
        self._base = base
        self._labels = labels
        self._log = log

    def look(self, identifier: PodIdentifier, record: JobRecord | None) -> PodLook:
        """Look at the pod whose identifier was stored."""
        try:
            there = self._calls.read_name(identifier.namespace, identifier.name)
            if there is not None and not identifier.uid:
                identifier = self._with_uid(identifier, there, record)
        except NO_ANSWER as error:
            return PodLook(JobPhase.UNKNOWN, f"it cannot be looked up: {_told(error)}", identifier)
        outcome = self._memory.outcome(identifier)
        if there is not None and there.metadata.uid == identifier.uid:
            if outcome is not None and outcome.reason == CANCELLED:
                return PodLook(JobPhase.FAILED, "it was cancelled", identifier, there, there=True)
            return self._at(identifier, there)
        why = "it is gone" if there is None else f"its name is that of another pod now (uid {there.metadata.uid})"
        if outcome is None:
            return PodLook(JobPhase.GONE, f"{why}, and was not seen to end", identifier)
        ended = outcome.as_pod(self._base)
        return PodLook(self._phase(ended), f"{why}, and was seen to end as {outcome.phase}", identifier, ended)

    def _at(self, identifier: PodIdentifier, pod: k8s.V1Pod) -> PodLook:
        phase, told = self._phase(pod), f"phase {pod.status.phase}"
        if why := loss_of(pod, self._base):
            told = f"taken away: {why}"
        elif phase is JobPhase.ACTIVE and pod.metadata.deletion_timestamp:
            told += ", and it is to be deleted"
        outcome = outcome_of(pod, self._base)
        if outcome is not None and outcome != self._memory.outcome(identifier):
            self._memory.remember_outcome(outcome)
        return PodLook(phase, told, identifier, pod, there=True)

    def _with_uid(self, identifier: PodIdentifier, there: k8s.V1Pod, record: JobRecord | None) -> PodIdentifier:
        """Upstream's class stores no uid. The pod of that name is the task's if its labels say so."""
        labelled = record is not None and (there.metadata.labels or {}).get(TOKEN_LABEL) == record.token
        ours = labelled or there.metadata.uid in {pod.metadata.uid for pod in self._labelled(identifier.namespace)}
        return identifier_of(there) if ours else identifier

    def search(self, token: str | None) -> PodLook:
        """Look for the pod that was created with this token. The API server's list is never behind its creations.

        Without a token, which is to say with nothing stored, for one of this task, as upstream's older releases left it.
        """
        if token is not None:
            return self._best(lambda: self._calls.find(self._namespace, f"{TOKEN_LABEL}={token}"), "its token")
        if self._labels is None:
            return NOTHING
        return self._best(lambda: self._labelled(self._namespace), "the task's labels")

    def _best(self, find: Callable[[], list[k8s.V1Pod]], by: str) -> PodLook:
        try:
            found = find()
        except NO_ANSWER as error:
            return PodLook(JobPhase.UNKNOWN, f"the search by {by} failed: {_told(error)}")
        if not found:
            return PodLook(JobPhase.GONE, f"no pod has {by}")
        best = identifier_of(found[0])
        if others := [str(identifier_of(pod)) for pod in found[1:]]:
            self._log.warning("%d pods have %s; going on with %s, not with %s", len(found), by, best, ", ".join(others))
        return PodLook(self._phase(found[0]), f"found by {by}", best, found[0], there=True)

    def _phase(self, pod: k8s.V1Pod) -> JobPhase:
        phase, code = phase_of(pod, self._base), exit_of(pod, self._base)
        return JobPhase.SUCCEEDED if phase is JobPhase.FAILED and code is not None and code in self._skips else phase

    def _labelled(self, namespace: str) -> list[k8s.V1Pod]:
        return [] if self._labels is None else self._calls.find(namespace, self._labels)


def _told(error: Exception) -> str:
    status = getattr(error, "status", None)
    return (
        f"{type(error).__name__} {status} {getattr(error, 'reason', '')}"
        if status
        else f"{type(error).__name__}: {error}"
    )
