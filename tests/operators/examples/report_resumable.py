from airflow.sdk import BaseOperator
from reports import ReportsClient

from airflow_state_watchers import ResumableJobMixin


class RunReport(ResumableJobMixin, BaseOperator):
    template_fields = ("report",)

    def __init__(self, *, report, address, **kwargs):
        super().__init__(**kwargs)
        self.report, self.client = report, ReportsClient(address)

    def execute(self, context):
        return self.execute_resumable(context)

    def submit_job(self, context):
        return self.client.submit(self.report, token=self.job_token)

    def get_job_status(self, external_id, context):
        return self.client.status(external_id)

    def is_job_active(self, status):
        return status == "RUNNING"

    def is_job_succeeded(self, status):
        return status == "SUCCEEDED"

    def get_job_result(self, external_id, context):
        return self.client.output(external_id)
