"""Athena queries that outlive their worker: one client request token, one query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_state_watchers.exceptions import JobGone
from airflow_state_watchers.operators.aws_job import AwsJob

try:
    from airflow.providers.amazon.aws.hooks.athena import AthenaHook
    from airflow.providers.amazon.aws.links.athena import AthenaQueryResultsLink
    from airflow.providers.amazon.aws.operators.athena import AthenaOperator
    from airflow.providers.amazon.aws.triggers.athena import AthenaTrigger
except ImportError as error:
    raise ImportError(
        f"ResumableAthenaOperator needs the Amazon provider, which cannot be imported ({error}). "
        "Install airflow-provider-state-watchers[amazon]."
    ) from error

from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.triggers.base import BaseTrigger

    from airflow_state_watchers.core.resume import JobId


class CancellingAthenaTrigger(AthenaTrigger):
    """Upstream's trigger, which stops the query when a person stops the deferred task."""

    async def on_kill(self) -> None:
        async with await self.hook().get_async_conn() as client:  # type: ignore[no-untyped-call]
            await client.stop_query_execution(QueryExecutionId=self.serialized_fields["query_execution_id"])


class ResumableAthenaOperator(AwsJob, AthenaOperator):
    """``AthenaOperator`` of the Amazon provider with all its arguments, whose query outlives the worker.

    The query is sent with a client request token of the task's own, so that Athena starts it once. A ``client_request_token``
    of yours is sent instead; then it is yours to change it when a query is to run again. See :doc:`/howto/resume_aws`.
    """

    external_id_key = "athena_query_execution_id"
    active_states = AthenaHook.INTERMEDIATE_STATES
    succeeded_states = AthenaHook.SUCCESS_STATES
    failed_states = AthenaHook.FAILURE_STATES
    beside_the_request = frozenset(
        {"botocore_config", "deferrable", "log_query", "max_polling_attempts", "region", "sleep_time", "verify"}
    )

    @property
    def status_interval(self) -> float:  # type: ignore[override]
        return self.sleep_time

    @property
    def status_timeout(self) -> float:  # type: ignore[override]
        return float(self.max_polling_attempts * self.sleep_time)

    def submit_job(self, context: Context) -> JobId:
        where = {**self.query_execution_context, "Catalog": self.catalog}
        if self.database:
            where["Database"] = self.database
        results = dict(self.result_configuration)
        if self.output_location:
            results["OutputLocation"] = self.output_location
        token = self.client_request_token or self.job_token
        return self.hook.run_query(self.query, where, results, token, self.workgroup)

    def describe_job(self, external_id: JobId) -> tuple[str | None, str]:
        try:
            status = self.hook.get_query_info(external_id)["QueryExecution"]["Status"]
        except ClientError as error:
            told = error.response.get("Error", {})
            if told.get("Code") == "InvalidRequestException" and "not found" in told.get("Message", ""):
                raise JobGone(f"Athena: {told['Message']}") from error
            raise
        return status.get("State"), status.get("StateChangeReason", "")

    def cancel_job(self, external_id: JobId, context: Context) -> None:
        self.hook.stop_query(external_id)

    def job_trigger(self, external_id: JobId, context: Context) -> BaseTrigger | None:
        if not self.deferrable:
            return None
        # A trigger cannot tell a clear from another stop.
        cancels = self.cancel_on_kill and self.on_clear == "rerun"
        return (CancellingAthenaTrigger if cancels else AthenaTrigger)(
            query_execution_id=external_id,
            waiter_delay=self.sleep_time,
            waiter_max_attempts=self.max_polling_attempts,
            aws_conn_id=self.aws_conn_id,
            region_name=self.region_name,
            verify=self.verify,
            botocore_config=self.botocore_config,
        )

    def get_job_result(self, external_id: JobId, context: Context) -> Any:
        return external_id

    def on_job_attached(self, external_id: JobId, context: Context) -> None:
        super().on_job_attached(external_id, context)
        self.query_execution_id = external_id
        AthenaQueryResultsLink.persist(
            context=context,
            operator=self,
            region_name=self.hook.conn_region_name,
            aws_partition=self.hook.conn_partition,
            query_execution_id=external_id,
        )
