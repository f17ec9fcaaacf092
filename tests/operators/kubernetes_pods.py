"""The pods behind the fake Kubernetes API: what the API server stores, and what a test makes kubelet and scheduler do."""

from __future__ import annotations

import copy
import itertools
import re
import threading
import uuid
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

Pod = dict[str, Any]

_LABEL = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
_NAME = re.compile(r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")


class Refused(Exception):
    """What the API server answers instead of an object: a status code, a reason and a message."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason


@dataclass
class Line:
    """One line of a container's log and the nanosecond at which it was written."""

    at: int
    text: str


@dataclass
class Pods:
    """Every pod, with a history that watches read. All of it under one lock, whose condition tells of each change."""

    held: dict[tuple[str, str], Pod] = field(default_factory=dict)
    logs: dict[tuple[str, str], list[Line]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    history: deque[tuple[int, str, Pod]] = field(default_factory=deque)
    compacted: int = 0
    linger: bool = False
    budget_blocks: bool = False
    created: list[Pod] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=lambda: threading.Condition(threading.RLock()))
    _versions: itertools.count[int] = field(default_factory=lambda: itertools.count(101))

    @property
    def version(self) -> int:
        return self.history[-1][0] if self.history else max(self.compacted, 100)

    def create(self, namespace: str, body: Pod) -> Pod:
        pod = copy.deepcopy(body)
        metadata = pod.setdefault("metadata", {})
        metadata["name"] = _name(metadata)
        _check(metadata, pod)
        with self.changed:
            if (namespace, metadata["name"]) in self.held:
                raise Refused(409, "AlreadyExists", f'pods "{metadata["name"]}" already exists')
            metadata.update(namespace=namespace, uid=str(uuid.uuid4()), creationTimestamp=now())
            pod["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
            pod.update(kind="Pod", apiVersion="v1")
            self.held[namespace, metadata["name"]] = pod
            self.created.append(pod)
            self.record("ADDED", pod)
            return copy.deepcopy(pod)

    def get(self, namespace: str, name: str) -> Pod:
        with self.changed:
            return copy.deepcopy(self.live(namespace, name))

    def live(self, namespace: str, name: str) -> Pod:
        if (namespace, name) not in self.held:
            raise Refused(404, "NotFound", f'pods "{name}" not found')
        return self.held[namespace, name]

    def patch(self, namespace: str, name: str, change: Pod) -> Pod:
        with self.changed:
            pod = self.live(namespace, name)
            asked = change.get("metadata", {}).pop("resourceVersion", None)
            if asked not in (None, pod["metadata"]["resourceVersion"]):
                raise Refused(409, "Conflict", f'Operation cannot be fulfilled on pods "{name}": it has been modified')
            _merge(pod, change)
            self.record("MODIFIED", pod)
            return copy.deepcopy(pod)

    def delete(self, namespace: str, name: str, options: Pod) -> Pod:
        """Gracefully: what runs is Terminating until it has stopped, at once unless ``linger``."""
        with self.changed:
            pod = self.live(namespace, name)
            wanted = (options.get("preconditions") or {}).get("uid")
            if wanted not in (None, pod["metadata"]["uid"]):
                held = pod["metadata"]["uid"]
                raise Refused(
                    409, "Conflict", f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {held}"
                )
            self.deleted.append(pod["metadata"]["uid"])
            grace = options.get("gracePeriodSeconds")
            grace = pod["spec"].get("terminationGracePeriodSeconds", 30) if grace is None else grace
            if pod["status"]["phase"] == "Running" and grace:
                pod["metadata"].update(deletionTimestamp=now(), deletionGracePeriodSeconds=grace)
                self.record("MODIFIED", pod)
                if self.linger:
                    return copy.deepcopy(pod)
            self.remove(namespace, name)
            return copy.deepcopy(pod)

    def remove(self, namespace: str, name: str) -> None:
        """The pod is gone: stopped after a deletion, or collected."""
        with self.changed:
            pod = self.held.pop((namespace, name))
            self.record("DELETED", pod)

    def record(self, kind: str, pod: Pod) -> None:
        with self.changed:
            pod["metadata"]["resourceVersion"] = str(next(self._versions))
            self.history.append((int(pod["metadata"]["resourceVersion"]), kind, copy.deepcopy(pod)))
            self.changed.notify_all()

    def compact(self) -> None:
        """Forget the history, as etcd does after five minutes: a watch from before it is told 410."""
        with self.changed:
            self.compacted = self.version
            self.history.clear()


def now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _name(metadata: Pod) -> str:
    if metadata.get("name"):
        return str(metadata["name"])
    if prefix := metadata.get("generateName"):
        return f"{prefix}{uuid.uuid4().hex[:5]}"
    raise Refused(422, "Invalid", "Pod is invalid: metadata.name: Required value: name or generateName is required")


def _check(metadata: Pod, pod: Pod) -> None:
    name = metadata["name"]
    if not _NAME.match(name) or len(name) > 253:
        raise Refused(422, "Invalid", f'Pod "{name}" is invalid: metadata.name: Invalid value: "{name}"')
    if not pod.get("spec", {}).get("containers"):
        raise Refused(422, "Invalid", f'Pod "{name}" is invalid: spec.containers: Required value')
    for key, value in (metadata.get("labels") or {}).items():
        if not _LABEL.match(value) or len(value) > 63:
            raise Refused(
                422, "Invalid", f'Pod "{name}" is invalid: metadata.labels: Invalid value: "{key}": "{value}"'
            )


def _merge(into: Pod, change: Pod) -> None:
    for key, value in change.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value
