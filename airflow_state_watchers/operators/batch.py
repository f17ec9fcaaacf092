"""AWS Batch jobs that outlive their worker. Batch has no idempotency tokens, so a job is found by its name and a tag."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_state_watchers.exceptions import JobGone
from airflow_state_watchers.operators.aws_job import AwsJob

try:
    from airflow.providers.amazon.aws.hooks.batch_client import BatchClientHook
    from airflow.providers.amazon.aws.links.batch import BatchJobDefinitionLink, BatchJobDetailsLink, BatchJobQueueLink
    from airflow.providers.amazon.aws.operators.batch import BatchOperator
    from airflow.providers.amazon.aws.triggers.batch import BatchJobTrigger
except ImportError as error:
    raise ImportError(
        f"ResumableBatchOperator needs the Amazon provider, which cannot be imported ({error}). "
        "Install airflow-provider-state-watchers[amazon]."
    ) from error

from airflow.sdk.exceptions import AirflowException
from botocore.exceptions import ClientError, ConnectTimeoutError, EndpointConnectionError, ProxyConnectionError

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.triggers.base import BaseTrigger

    from airflow_state_watchers.core.resume import JobId

TOKEN_TAG = "airflow-job-token"  # noqa: S105  the name of a tag
WHY = "Its Airflow task is over"
NEVER_SENT = (ConnectTimeoutError, EndpointConnectionError, ProxyConnectionError)


class CancellingBatchJobTrigger(BatchJobTrigger):
    """Upstream's trigger, which terminates the job when a person stops the deferred task."""

    async def on_kill(self) -> None:
        async with await self.hook().get_async_conn() as client:  # type: ignore[no-untyped-call]
            await client.terminate_job(jobId=self.serialized_fields["job_id"], reason=WHY)


class ResumableBatchOperator(AwsJob, BatchOperator):
    """``BatchOperator`` of the Amazon provider with all its arguments, whose job outlives the worker.

    The job is submitted with one tag more, ``airflow-job-token``. A try whose predecessor died before it could store the
    job's id looks for that tag among the jobs of this name in this queue. See :doc:`/howto/resume_aws` for the permissions
    that this takes, and for what waits differently.
    """

    external_id_key = "batch_job_id"
    active_states = BatchClientHook.INTERMEDIATE_STATES
    succeeded_states = (BatchClientHook.SUCCESS_STATE,)
    failed_states = (BatchClientHook.FAILURE_STATE,)
    beside_the_request = frozenset(
        {
            "awslogs_enabled",
            "awslogs_fetch_interval",
            "botocore_config",
            "deferrable",
            "job_id",
            "max_retries",
            "poll_interval",
            "region",
            "status_retries",
            "verify",
            "wait_for_completion",
            "waiters",
        }
    )

    _shown = False
    """Whether this try has the job's log and the link to it already."""

    @property
    def status_interval(self) -> float:  # type: ignore[override]
        return self.poll_interval

    @property
    def status_timeout(self) -> float:  # type: ignore[override]
        """As long as upstream's operator waits when it is deferred."""
        longest = float((self.max_retries or BatchClientHook.MAX_RETRIES) * self.poll_interval)
        limit: timedelta | None = self.execution_timeout if self.deferrable else None
        return longest if limit is None else min(longest, limit.total_seconds())

    @property
    def _client(self) -> Any:
        return self.hook.client

    def submit_job(self, context: Context) -> JobId:
        self._client.meta.events.register_first("needs-retry.batch.SubmitJob", _send_once, unique_id="send-once")
        tags = self.tags
        self.tags = {**(tags or {}), TOKEN_TAG: self.job_token}
        try:
            BatchOperator.submit_job(self, context)
        finally:
            self.tags = tags
        return self.job_id

    def find_job(self, token: str, context: Context) -> JobId:
        for ids in self._jobs_of_this_name():
            for job in self._client.describe_jobs(jobs=ids)["jobs"]:
                if job.get("tags", {}).get(TOKEN_TAG) == token:
                    return job["jobId"]
        return None

    def _jobs_of_this_name(self) -> Iterator[list[str]]:
        """Yield pages of ids, the newest first. A page is no longer than what can be described at once."""
        asked: dict[str, Any] = {
            "jobQueue": self.job_queue,
            "filters": [{"name": "JOB_NAME", "values": [self.job_name]}],
            "maxResults": 100,
        }
        while True:
            page = self._client.list_jobs(**asked)
            if ids := [job["jobId"] for job in page["jobSummaryList"]]:
                yield ids
            if not page.get("nextToken"):
                return
            asked["nextToken"] = page["nextToken"]

    def describe_job(self, external_id: JobId) -> tuple[str | None, str]:
        job = self._description(external_id)
        return job.get("status"), job.get("statusReason", "")

    def _description(self, external_id: JobId) -> dict[str, Any]:
        jobs = self._client.describe_jobs(jobs=[external_id])["jobs"]
        if not jobs:
            raise JobGone(f"AWS Batch has no job {external_id}")
        return dict(jobs[0])

    def cancel_job(self, external_id: JobId, context: Context) -> None:
        self._client.terminate_job(jobId=external_id, reason=WHY)

    def job_trigger(self, external_id: JobId, context: Context) -> BaseTrigger | None:
        if not self.deferrable:
            return None
        # A trigger cannot tell a clear from another stop.
        cancels = self.cancel_on_kill and self.on_clear == "rerun"
        return (CancellingBatchJobTrigger if cancels else BatchJobTrigger)(
            job_id=external_id,
            waiter_max_attempts=self.max_retries,
            waiter_delay=self.poll_interval,
            aws_conn_id=self.aws_conn_id,
            region_name=self.region_name,
            verify=self.verify,
            botocore_config=self.botocore_config,
        )

    def poll_until_complete(self, external_id: JobId, context: Context) -> None:
        if not self._waits():
            return
        if not self.deferrable and (self.waiters or self.awslogs_enabled):
            self.monitor_job(context)  # upstream's own way of waiting, which has the job's log in the task's
            self._shown = True
        else:
            super().poll_until_complete(external_id, context)

    def _waits(self) -> bool:
        return self.deferrable or bool(self.wait_for_completion)

    def get_job_result(self, external_id: JobId, context: Context) -> Any:
        self.job_id = external_id
        if self._waits() and not self._shown:
            self.execute_complete(context, {"status": "success", "job_id": external_id})
        return external_id

    def on_job_failed(self, external_id: JobId, context: Context) -> None:
        with suppress(AirflowException):  # it raises the failure once it has shown the log and the link to it
            self.execute_complete(context, {"status": "error", "job_id": external_id})

    def on_job_attached(self, external_id: JobId, context: Context) -> None:
        super().on_job_attached(external_id, context)
        self.job_id, self._shown = external_id, False
        self._link(BatchJobDetailsLink, context, job_id=external_id)
        if not self._waits():
            return
        try:
            job = self._description(external_id)
        except Exception as error:  # the waiting that follows deals with it
            self.log.warning("job %r: no links to its queue and definition: %s", external_id, error)
            return
        self._link(BatchJobDefinitionLink, context, job_definition_arn=job.get("jobDefinition"))
        self._link(BatchJobQueueLink, context, job_queue_arn=job.get("jobQueue"))

    def _link(self, link: Any, context: Context, **which: Any) -> None:
        region, partition = self.hook.conn_region_name, self.hook.conn_partition
        link.persist(context=context, operator=self, region_name=region, aws_partition=partition, **which)


def _send_once(response: Any, caught_exception: Exception | None, **rest: Any) -> None:
    """Keep botocore from sending a submission again that may have started a job: that would start a second one.

    The task's next try looks for the first.
    """
    if caught_exception is not None and not isinstance(caught_exception, NEVER_SENT):
        raise caught_exception
    if response is not None and response[0].status_code >= 500:
        raise ClientError(response[1], "SubmitJob")
