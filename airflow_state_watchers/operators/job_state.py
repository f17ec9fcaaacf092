"""What a task remembers of its job, in its task state: upstream's key with the job's id alone, and our record beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from airflow.sdk.execution_time.context import NEVER_EXPIRE

from airflow_state_watchers.core.resume import JobId, JobRecord
from airflow_state_watchers.core.resume_codec import dump_record, load_record
from airflow_state_watchers.core.stored import Unreadable
from airflow_state_watchers.exceptions import JobError


class JobState:
    """The two keys. A retry may come after any time, so they outlive ``[state_store] default_retention_days``."""

    def __init__(self, store: Any, key: str) -> None:
        self._store = store
        self._key = key
        self._record_key = f"{key}.resume"

    def load(self) -> tuple[JobRecord | None, JobId]:
        """Return the record, and the id under upstream's key; each ``None`` if it is not there."""
        stored = self._store.get(self._record_key)
        if stored is None:
            return None, self._store.get(self._key)
        try:
            record = load_record(stored)
        except Unreadable as error:
            raise JobError(
                f"task state {self._record_key!r} cannot be read: {error}. Delete this key and the next try goes on by the "
                f"id under {self._key!r} alone; delete both and it submits a new job."
            ) from None
        return record, self._store.get(self._key)

    def intend(self, record: JobRecord) -> None:
        """Store what is about to be submitted."""
        self._store.set(self._record_key, dump_record(record), retention=NEVER_EXPIRE)

    def remember(self, record: JobRecord, external_id: JobId) -> JobRecord:
        """Store the job's id, first where upstream's class looks for it; return the record that has it."""
        self._store.set(self._key, external_id, retention=NEVER_EXPIRE)
        record = replace(record, external_id=external_id)
        self.intend(record)
        return record
