"""What a pod is called, how it stands, and what is remembered of how it ended once it may be collected.

A pod is told by its uid: a name is free again as soon as its pod is deleted. Upstream stores name and namespace under
``pod_identifier``; so do we, with the uid beside them, which upstream's class does not look at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kubernetes.client import models as k8s

from airflow_state_watchers.core.resume import JobPhase
from airflow_state_watchers.core.stored import Unreadable

VERSION = 1
CANCELLED = "Cancelled"
"""The reason of an outcome that is our own doing: the pod was deleted because nobody waited for it any more."""

# What kubelet and the control plane give as the reason of a pod that they ended, or never admitted to its node. A container
# of its own that failed gives none; DeadlineExceeded is the pod's own limit.
_TAKEN_AWAY = frozenset(
    {
        "Evicted",
        "NodeAffinity",
        "NodeLost",
        "NodeShutdown",
        "Preempting",
        "Shutdown",
        "Terminated",
        "UnexpectedAdmissionError",
    }
)
_PHASES = {"Unknown": JobPhase.UNKNOWN, "Failed": JobPhase.FAILED, "Succeeded": JobPhase.SUCCEEDED}
_OVER = ("Succeeded", "Failed")
_KILLED = frozenset({137, 143})
"""Exit codes of a container that SIGKILL or SIGTERM ended."""


@dataclass(frozen=True)
class PodIdentifier:
    """A pod and no other: ``uid`` is ``None`` only where upstream's class stored the rest."""

    namespace: str
    name: str
    uid: str | None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} (uid {self.uid or 'not stored'})"

    def dump(self) -> dict[str, str]:
        return {"name": self.name, "namespace": self.namespace} | ({"uid": self.uid} if self.uid else {})


def identifier_of(pod: k8s.V1Pod) -> PodIdentifier:
    return PodIdentifier(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)


def load_identifier(stored: Any) -> PodIdentifier:
    """Read what upstream or :meth:`PodIdentifier.dump` stored. Raises :class:`Unreadable`."""
    if not isinstance(stored, Mapping):
        raise Unreadable(f"it is a {type(stored).__name__}, not an object")
    namespace, name, uid = stored.get("namespace"), stored.get("name"), stored.get("uid")
    if not isinstance(namespace, str) or not isinstance(name, str) or not (uid is None or isinstance(uid, str)):
        raise Unreadable(f"it holds no namespace and name: {dict(stored)!r}")
    return PodIdentifier(namespace, name, uid)


@dataclass(frozen=True)
class PodOutcome:
    """How a pod ended, as far as a later try needs it: phase, and per container the exit code and termination message."""

    pod: PodIdentifier
    phase: str
    reason: str | None
    exits: Mapping[str, tuple[int, str | None]]

    def dump(self) -> dict[str, Any]:
        ended = {name: list(how) for name, how in self.exits.items()}
        return {"v": VERSION, "pod": self.pod.dump(), "phase": self.phase, "reason": self.reason, "exits": ended}

    def as_pod(self, base: str) -> k8s.V1Pod:
        """The pod as the API server last showed it, less what nobody reads of a pod that is over.

        One that was last seen with its base container ended and another still running has ended since.
        """
        phase = self.phase
        if phase not in _OVER:
            phase = "Failed" if self.exits[base][0] else "Succeeded"
        return k8s.V1Pod(
            api_version="v1",
            kind="Pod",
            metadata=k8s.V1ObjectMeta(namespace=self.pod.namespace, name=self.pod.name, uid=self.pod.uid, labels={}),
            spec=k8s.V1PodSpec(containers=[k8s.V1Container(name=name) for name in self.exits]),
            status=k8s.V1PodStatus(
                phase=phase,
                reason=self.reason,
                container_statuses=[_status(name, *how) for name, how in self.exits.items()],
            ),
        )


def load_outcome(stored: Any) -> PodOutcome:
    """Read :meth:`PodOutcome.dump`'s value. Raises :class:`Unreadable`."""
    if not isinstance(stored, Mapping) or stored.get("v") != VERSION:
        raise Unreadable(f"it is no outcome of version {VERSION}")
    try:
        exits = {str(name): (int(code), message) for name, (code, message) in stored["exits"].items()}
        return PodOutcome(load_identifier(stored["pod"]), str(stored["phase"]), stored["reason"], exits)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unreadable(f"it is no outcome: {error!r}") from error


def outcome_of(pod: k8s.V1Pod, base: str) -> PodOutcome | None:
    """How the pod ended, or ``None`` while its base container has not, or where it was taken away instead."""
    exits = _exits(pod)
    over = pod.status.phase in _OVER or base in exits
    if not over or loss_of(pod, base):
        return None
    return PodOutcome(identifier_of(pod), _phase(pod, exits.get(base)), pod.status.reason, exits)


def phase_of(pod: k8s.V1Pod, base: str) -> JobPhase:
    """The pod's phase as a job's. What was taken away from its task is ``GONE``, whether or not its object still is there.

    The base container decides as soon as it has ended: the sidecar that waits for the XCom to be fetched keeps the pod running.
    """
    if loss_of(pod, base):
        return JobPhase.GONE
    ended = _exits(pod).get(base)
    phase = _phase(pod, ended)
    if phase in _PHASES:
        return _PHASES[phase]
    if ended is None:
        return JobPhase.ACTIVE
    return JobPhase.FAILED if ended[0] else JobPhase.SUCCEEDED


def _phase(pod: k8s.V1Pod, ended: tuple[int, str | None] | None) -> str:
    """The pod's phase, unless it is Failed for having been taken away when its base container had succeeded."""
    succeeded = ended is not None and ended[0] == 0
    return "Succeeded" if pod.status.phase == "Failed" and succeeded and _taken_away(pod) else str(pod.status.phase)


def loss_of(pod: k8s.V1Pod, base: str) -> str | None:
    """Why the pod's end says nothing about its work: evicted, preempted, drained, its node gone. ``None`` if it does not."""
    ended = _exits(pod).get(base)
    if pod.status.phase == "Succeeded" or (ended is not None and ended[0] == 0):
        return None
    if pod.status.phase != "Failed" and ended is None:
        return None
    if why := _taken_away(pod):
        return why
    # Deleted by whom it may be: a drain without the eviction API, a person. A container that failed by itself has another code.
    if pod.metadata.deletion_timestamp and ended is not None and ended[0] in _KILLED:
        return "deleted"
    return None


def _taken_away(pod: k8s.V1Pod) -> str | None:
    reason = pod.status.reason
    if reason in _TAKEN_AWAY or (reason or "").startswith("OutOf"):
        return str(reason)
    for condition in pod.status.conditions or []:
        if condition.type == "DisruptionTarget" and condition.status == "True":
            return str(condition.reason)
    return None


def exit_of(pod: k8s.V1Pod, base: str) -> int | None:
    ended = _exits(pod).get(base)
    return None if ended is None else ended[0]


def _exits(pod: k8s.V1Pod) -> dict[str, tuple[int, str | None]]:
    ended = {}
    for status in pod.status.container_statuses or []:
        if status.state and status.state.terminated:
            ended[status.name] = (status.state.terminated.exit_code, status.state.terminated.message)
    return ended


def _status(name: str, code: int, message: str | None) -> k8s.V1ContainerStatus:
    ended = k8s.V1ContainerStateTerminated(exit_code=code, message=message)
    state = k8s.V1ContainerState(terminated=ended)
    return k8s.V1ContainerStatus(name=name, image="", image_id="", ready=False, restart_count=0, state=state)
