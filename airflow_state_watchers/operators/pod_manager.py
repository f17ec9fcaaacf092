"""The provider's pod manager, with two of its ways changed: whose pod it reads, and which lines of a log it shows."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from airflow.providers.cncf.kubernetes.utils.pod_manager import (
    PodCommandException,
    PodManager,
    PodPhase,
    XComRetrievalError,
)
from airflow.providers.cncf.kubernetes.utils.xcom_sidecar import PodDefaults
from kubernetes.client import ApiException
from kubernetes.client import models as k8s

from airflow_state_watchers.core.log_position import NOTHING_SHOWN, LogPosition, unseen
from airflow_state_watchers.operators.pod_calls import PodCalls
from airflow_state_watchers.operators.pod_memory import PodMemory
from airflow_state_watchers.operators.pod_outcome import PodIdentifier, identifier_of
from airflow_state_watchers.operators.pod_watched import WatchedPod
from airflow_state_watchers.operators.stopping import Stop

SAVE_EVERY = 5.0
"""Seconds between two writes of how far a log was shown, while lines come."""
_CLOCKS_APART = 60
"""Seconds by which this machine's clock may be ahead of the API server's. Lines read twice for it are not shown."""
_DAY = 24 * 3600


class ShownLog:
    """How far each container's log has been shown, stored now and then. A killed worker's last seconds are shown again."""

    def __init__(self, memory: PodMemory, pod: PodIdentifier, stop: Stop) -> None:
        self._memory, self._pod, self._stop = memory, pod, stop
        self._shown = memory.log_positions(pod)
        self._saved, self._dirty = time.monotonic(), False

    def since_seconds(self, container: str) -> int | None:
        """From when on to ask for lines: whole seconds, and more of them rather than fewer."""
        shown = self._shown.get(container, NOTHING_SHOWN)
        return None if shown == NOTHING_SHOWN else max(1, int(time.time()) - shown.at // 1_000_000_000 + _CLOCKS_APART)

    def unseen(self, container: str, lines: Iterable[bytes]) -> Iterator[bytes]:
        before: LogPosition | None = None
        given: LogPosition | None = None
        try:
            for line, position in unseen(lines, self._shown.get(container, NOTHING_SHOWN)):
                self._stop.check()
                # The provider shows a line once it has the next one: of two that were given, the first has been shown.
                if before is not None:
                    self._move(container, before)
                    self._save_if_due()
                before, given = given, position
                yield line
        finally:
            if given is not None:
                self._move(container, given)

    def _move(self, container: str, position: LogPosition) -> None:
        self._shown[container], self._dirty = position, True

    def _save_if_due(self) -> None:
        if time.monotonic() - self._saved >= SAVE_EVERY:
            self.save()

    def save(self) -> None:
        if self._dirty:
            self._memory.remember_log_positions(self._pod, self._shown)
            self._saved, self._dirty = time.monotonic(), False


class CarefulPodManager(PodManager):
    """Deletes by uid as well as by name."""

    def __init__(self, *, calls: PodCalls, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._calls = calls

    def delete_pod(self, pod: k8s.V1Pod) -> None:
        self._calls.delete(identifier_of(pod))


class ResumingPodManager(CarefulPodManager):
    """For the pod of one task alone: whatever is asked of it is asked of that pod."""

    def __init__(self, *, watched: WatchedPod, log: ShownLog, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._watched, self._shown_log = watched, log

    def read_pod(self, pod: k8s.V1Pod) -> k8s.V1Pod:
        return self._watched.read(lambda: super(ResumingPodManager, self).read_pod(pod))

    def extract_xcom(self, pod: k8s.V1Pod, *, ignore_kill_failure: bool = True) -> str:
        """Fetch the XCom and store it, and only then tell the sidecar to go, after which nobody can fetch it again."""
        kept = self._watched.xcom()
        if kept is not None and not self.container_is_running(pod, PodDefaults.SIDECAR_CONTAINER_NAME):
            return kept
        text = str(self.extract_xcom_json(pod))
        self._watched.remember_xcom(text)
        try:
            self.extract_xcom_kill(pod)
        except (PodCommandException, ApiException) as error:
            if not ignore_kill_failure:
                raise
            self.log.warning("pod %s: its XCom sidecar runs on: %s", self._watched.identifier, error)
        return text

    def await_xcom_sidecar_container_start(self, pod: k8s.V1Pod, *args: Any, **kwargs: Any) -> None:
        if self._watched.xcom() is not None:
            return
        if self.read_pod(pod).status.phase in PodPhase.terminal_states:
            raise XComRetrievalError(
                f"pod {self._watched.identifier} ended before its XCom was fetched, and its sidecar with it. Clear the task to "
                f"run it again."
            )
        super().await_xcom_sidecar_container_start(pod, *args, **kwargs)

    def fetch_container_logs(self, pod: k8s.V1Pod, container_name: str, **kwargs: Any) -> Any:
        try:
            return super().fetch_container_logs(pod, container_name, **kwargs)
        finally:
            self._shown_log.save()

    def read_pod_logs(
        self, pod: k8s.V1Pod, container_name: str, *args: Any, timestamps: bool = False, **kwargs: Any
    ) -> Any:
        if timestamps:
            kwargs["since_seconds"] = self._shown_log.since_seconds(container_name)
            # A worker that comes back later than the usual two minutes still shows what the container said at last.
            kwargs["post_termination_timeout"] = _DAY
        lines = super().read_pod_logs(pod, container_name, *args, timestamps=timestamps, **kwargs)
        return self._shown_log.unseen(container_name, lines) if timestamps else lines
