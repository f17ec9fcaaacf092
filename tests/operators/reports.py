"""One operator of the fake job service, made resumable in each way that there is."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk import ResumableJobMixin as UpstreamMixin

from airflow_state_watchers import JobFailed, JobGone, ResumableJobMixin
from tests.operators.job_service import JobClient, Refused


class _Report:
    """What every variant has: upstream's hooks. Airflow knows the time between two looks, a test does not wait for it."""

    report: str
    client: JobClient

    def execute(self, context: Any) -> Any:
        return self.execute_resumable(context)  # type: ignore[attr-defined]

    def submit_job(self, context: Any) -> str:
        return self.client.submit(self.report)

    def get_job_status(self, external_id: Any, context: Any) -> str:
        return self.client.status(external_id)

    def is_job_active(self, status: str) -> bool:
        return status in ("PENDING", "RUNNING")

    def is_job_succeeded(self, status: str) -> bool:
        return status == "SUCCEEDED"

    def get_job_result(self, external_id: Any, context: Any) -> Any:
        return self.client.output(external_id)


class UpstreamReport(_Report, UpstreamMixin, BaseOperator):
    """Upstream's class, as its documentation shows it."""

    def __init__(self, *, report: str, address: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.report, self.client = report, JobClient(address)

    def poll_until_complete(self, external_id: Any, context: Any) -> None:
        while self.is_job_active(status := self.get_job_status(external_id, context)):
            pass
        if not self.is_job_succeeded(status):
            raise RuntimeError(f"{external_id}: {status}")


class PlainReport(_Report, ResumableJobMixin, BaseOperator):
    """Ours, for a service that gives no means to know: neither tokens nor a search."""

    template_fields = ("report",)

    def __init__(self, *, report: str, address: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.report, self.client = report, JobClient(address)

    def get_job_status(self, external_id: Any, context: Any) -> str:
        try:
            return super().get_job_status(external_id, context)
        except Refused as refused:
            if refused.status == 404:
                raise JobGone(f"{external_id}: 404") from refused
            raise

    def on_job_attached(self, external_id: Any, context: Any) -> None:
        context["ti"].xcom_push(key="job", value=external_id)


class TokenReport(PlainReport):
    """... for a service with idempotency tokens."""

    def submit_job(self, context: Any) -> str:
        return self.client.submit(self.report, self.job_token)


class FoundReport(TokenReport):
    """... for one that keeps the token as a tag, and can be asked for it."""

    def find_job(self, token: str, context: Any) -> Any:
        return next(iter(self.client.search(token)), None)


class FullReport(FoundReport):
    """With every optional hook but a trigger."""

    def cancel_job(self, external_id: Any, context: Any) -> None:
        self.client.cancel(external_id)

    def is_job_failed(self, status: str) -> bool:
        return status in ("FAILED", "CANCELLED")


class ReusingReport(FullReport):
    on_clear = "reuse"


class OwnPollingReport(TokenReport):
    """Waits in its own way, as operators do that come from upstream's class."""

    def poll_until_complete(self, external_id: Any, context: Any) -> None:
        while self.is_job_active(status := self.get_job_status(external_id, context)):
            pass
        if not self.is_job_succeeded(status):
            raise JobFailed(f"{external_id}: {status}")
