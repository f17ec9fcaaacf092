"""What the fake cluster does when a test says so: start and finish containers, evict, preempt, drain, lose a node."""

from __future__ import annotations

import time
from typing import Any

from tests.operators.kubernetes_pods import Line, Pod, Pods, now

SIDECAR = "airflow-xcom-sidecar"
Key = tuple[str, str]


class Cluster:
    """Kubelet, scheduler and collectors in one, over the stored pods. Names are of the namespace ``default``."""

    def __init__(self, pods: Pods, namespace: str = "default") -> None:
        self.pods, self.namespace = pods, namespace

    def run(self, name: str, *, at: str | None = None) -> None:
        """Schedule the pod and start its containers."""
        started = {"running": {"startedAt": at or now()}}
        with self.pods.changed:
            pod = self.pods.live(self.namespace, name)
            pod["spec"]["nodeName"] = "node-1"
            pod["status"].update(
                phase="Running",
                startTime=at or now(),
                conditions=[{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
                containerStatuses=[_status(one["name"], started) for one in pod["spec"]["containers"]],
            )
            self.pods.record("MODIFIED", pod)

    def say(self, name: str, *texts: str, container: str = "base", at: int | None = None) -> None:
        """Write lines into the container's log, each a microsecond after the one before, or all at one nanosecond."""
        with self.pods.changed:
            lines = self.pods.logs.setdefault((self._uid(name), container), [])
            for text in texts:
                newest = lines[-1].at + 1_000 if lines else 0
                lines.append(Line(max(time.time_ns(), newest) if at is None else at, text))
            self.pods.changed.notify_all()

    def finish(self, name: str, *, code: int = 0, message: str | None = None, container: str = "base") -> None:
        """End one container; the pod is over when none runs."""
        with self.pods.changed:
            pod = self.pods.live(self.namespace, name)
            ended: dict[str, Any] = {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": now()}
            if message is not None:
                ended["message"] = message
            for status in pod["status"].get("containerStatuses", []):
                if status["name"] == container:
                    status["state"] = {"terminated": ended}
            states = [status["state"] for status in pod["status"].get("containerStatuses", [])]
            if all("terminated" in state for state in states):
                failed = any(state["terminated"]["exitCode"] for state in states)
                pod["status"]["phase"] = "Failed" if failed else "Succeeded"
            self.pods.record("MODIFIED", pod)

    def complete(self, name: str, *, code: int = 0, message: str | None = None) -> None:
        """End every container at once, as where nothing waits for a sidecar."""
        for container in [one["name"] for one in self.pods.get(self.namespace, name)["spec"]["containers"]]:
            self.finish(name, code=code, message=message, container=container)

    def write_xcom(self, name: str, text: str) -> None:
        """What the base container leaves at ``/airflow/xcom/return.json`` for the sidecar."""
        with self.pods.changed:
            self.pods.files[self._uid(name)] = text

    def collect(self, name: str) -> None:
        """The collector of finished pods, or a person with ``--force``: the object is gone."""
        self.pods.remove(self.namespace, name)

    def evict(self, name: str, *, ended: int | None = None) -> None:
        """Kubelet needs the memory: Failed with the reason Evicted; the base container may have ended before."""
        if ended is not None:
            self.finish(name, code=ended)
        self._fail(name, "Evicted", "The node was low on resource: memory.", "TerminationByKubelet")

    def shut_down(self, name: str) -> None:
        """The node is shut down in order, and kubelet ends its pods."""
        self._fail(
            name, "Terminated", "Pod was terminated in response to imminent node shutdown.", "TerminationByKubelet"
        )

    def preempt(self, name: str) -> None:
        """A pod of higher priority takes the place: marked, then deleted."""
        self._disrupt(name, "PreemptionByScheduler")
        self.pods.remove(self.namespace, name)

    def drain(self, name: str) -> None:
        """As ``kubectl drain`` does by the eviction API: marked, then deleted."""
        self._disrupt(name, "EvictionByEvictionAPI")
        self.pods.remove(self.namespace, name)

    def lose_node(self, name: str, *, collected: bool = False) -> None:
        """The node is unreachable: marked for deletion but still there; with the node's object deleted, Failed."""
        with self.pods.changed:
            pod = self.pods.live(self.namespace, name)
            pod["metadata"].update(deletionTimestamp=now(), deletionGracePeriodSeconds=30)
            pod["status"].update(reason="NodeLost", message="Node node-1 which was running pod is unresponsive")
            self.pods.record("MODIFIED", pod)
        if collected:
            self._fail(name, "NodeLost", "Node node-1 is gone.", "DeletionByPodGC")

    def reuse(self, name: str, **labels: str) -> Pod:
        """Someone else's pod under the name of one that is gone."""
        body = {
            "metadata": {"name": name, "labels": labels},
            "spec": {"containers": [{"name": "base", "image": "other"}]},
        }
        return self.pods.create(self.namespace, body)

    def names(self) -> list[str]:
        with self.pods.changed:
            return sorted(name for namespace, name in self.pods.held if namespace == self.namespace)

    def newest(self) -> str:
        with self.pods.changed:
            return str(max(self.pods.held.values(), key=lambda pod: self.pods.created.index(pod))["metadata"]["name"])

    def _uid(self, name: str) -> str:
        return str(self.pods.live(self.namespace, name)["metadata"]["uid"])

    def _fail(self, name: str, reason: str, message: str, condition: str) -> None:
        with self.pods.changed:
            pod = self.pods.live(self.namespace, name)
            _add_disruption(pod, condition)
            # Kubelet reports a container that it killed as ended by a signal, if it still reports it.
            for status in pod["status"].get("containerStatuses", []):
                if "terminated" in status["state"]:
                    continue
                status["state"] = {"terminated": {"exitCode": 137, "reason": "Error", "finishedAt": now()}}
            pod["status"].update(phase="Failed", reason=reason, message=message)
            self.pods.record("MODIFIED", pod)

    def _disrupt(self, name: str, reason: str) -> None:
        with self.pods.changed:
            pod = self.pods.live(self.namespace, name)
            _add_disruption(pod, reason)
            pod["metadata"].update(deletionTimestamp=now(), deletionGracePeriodSeconds=30)
            self.pods.record("MODIFIED", pod)


def _status(name: str, state: Pod) -> Pod:
    return {"name": name, "image": "x", "imageID": "x", "ready": True, "restartCount": 0, "state": state}


def _add_disruption(pod: Pod, reason: str) -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": reason}
    pod["status"].setdefault("conditions", []).append(condition)
