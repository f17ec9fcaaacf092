"""What a task remembers of its pod beside the job's two keys: how it ended, its XCom, and how far its log has been shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import NEVER_EXPIRE  # type: ignore[attr-defined]

from airflow_state_watchers.core.log_position import LogPosition
from airflow_state_watchers.core.resume import JobId
from airflow_state_watchers.core.stored import Unreadable
from airflow_state_watchers.exceptions import JobError
from airflow_state_watchers.operators.job_state import JobState
from airflow_state_watchers.operators.pod_outcome import PodIdentifier, PodOutcome, load_identifier, load_outcome

KEY = "pod_identifier"
"""Upstream's key."""


class PodMemory(JobState):
    """Each further value names the pod's uid, and one of another pod counts as none."""

    def __init__(self, store: Any) -> None:
        super().__init__(store, KEY)

    def identifier(self, external_id: JobId) -> PodIdentifier:
        try:
            return load_identifier(external_id)
        except Unreadable as error:
            raise JobError(
                f"task state {KEY!r} cannot be read: {error}. Delete this key and {KEY}.resume, and the next try looks for "
                f"its pod by the labels."
            ) from None

    def outcome(self, pod: PodIdentifier) -> PodOutcome | None:
        stored = self._of("outcome", pod)
        if stored is None:
            return None
        try:
            return load_outcome(stored)
        except Unreadable as error:
            raise JobError(f"task state '{KEY}.outcome' cannot be read: {error}. Delete this key.") from None

    def remember_outcome(self, outcome: PodOutcome) -> None:
        self._keep("outcome", outcome.pod, outcome.dump())

    def xcom(self, pod: PodIdentifier) -> str | None:
        stored = self._of("xcom", pod)
        return None if stored is None else str(stored)

    def remember_xcom(self, pod: PodIdentifier, text: str) -> None:
        self._keep("xcom", pod, text)

    def log_positions(self, pod: PodIdentifier) -> dict[str, LogPosition]:
        stored = self._of("log", pod) or {}
        return {name: LogPosition(at, shown) for name, (at, shown) in stored.items()}

    def remember_log_positions(self, pod: PodIdentifier, positions: Mapping[str, LogPosition]) -> None:
        self._keep("log", pod, {name: [position.at, position.shown] for name, position in positions.items()})

    def _of(self, what: str, pod: PodIdentifier) -> Any:
        stored = self._store.get(f"{KEY}.{what}")
        return stored["value"] if isinstance(stored, Mapping) and stored.get("uid") == pod.uid else None

    def _keep(self, what: str, pod: PodIdentifier, value: Any) -> None:
        self._store.set(f"{KEY}.{what}", {"uid": pod.uid, "value": value}, retention=NEVER_EXPIRE)
