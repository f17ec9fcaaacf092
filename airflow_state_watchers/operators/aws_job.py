"""What the ready-made operators of AWS have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from airflow_state_watchers.exceptions import JobFailed
from airflow_state_watchers.operators.resumable import ResumableJobMixin

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_state_watchers.core.resume import JobId


class AwsJob(ResumableJobMixin):
    """A job by its status. A subclass names the statuses, and says in :meth:`describe_job` what a look has shown."""

    active_states: ClassVar[tuple[str, ...]]
    succeeded_states: ClassVar[tuple[str, ...]]
    failed_states: ClassVar[tuple[str, ...]]
    beside_the_request: ClassVar[frozenset[str]]
    """Arguments that say how to wait for a job, and not what it is."""

    _woken = False
    _taken_up = False
    """Whether this try has its job: from then on the job's failure is the try's."""

    def describe_job(self, external_id: JobId) -> tuple[str | None, str]:
        """Return the job's status, and the reason that the service gives for it. Raises ``JobGone``."""
        raise NotImplementedError

    def execute(self, context: Context) -> Any:
        rescheduled = self.wait == "reschedule" and context["ti"].get_first_reschedule_date(context) is not None
        self._taken_up, self._woken = self._woken or rescheduled, False
        return self.execute_resumable(context)

    def resume_job(self, context: Context, event: Any = None) -> Any:
        self._woken = True
        return super().resume_job(context, event)

    def get_job_status(self, external_id: JobId, context: Context) -> str:
        status, reason = self.describe_job(external_id)
        if self._taken_up and status in self.failed_states:
            self.on_job_failed(external_id, context)
            raise JobFailed(
                f"job {external_id!r}: it has ended with status {status!r}: {reason or 'no reason is given'}"
            )
        return status  # type: ignore[return-value]  # None is what an answer without a status comes to

    def is_job_active(self, status: str) -> bool:
        return status in self.active_states

    def is_job_succeeded(self, status: str) -> bool:
        return status in self.succeeded_states

    def is_job_failed(self, status: str) -> bool:
        return status in self.failed_states

    def on_job_failed(self, external_id: JobId, context: Context) -> None:
        """Leave what a failed run of upstream's operator leaves."""

    def on_job_attached(self, external_id: JobId, context: Context) -> None:
        self._taken_up = True

    def job_identity(self, context: Context) -> Any:
        asked: dict[str, Any] = super().job_identity(context)
        return {name: value for name, value in asked.items() if name not in self.beside_the_request}
