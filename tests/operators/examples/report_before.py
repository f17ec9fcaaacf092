import time

from airflow.sdk import BaseOperator
from reports import ReportsClient


class RunReport(BaseOperator):
    template_fields = ("report",)

    def __init__(self, *, report, address, **kwargs):
        super().__init__(**kwargs)
        self.report, self.client = report, ReportsClient(address)

    def execute(self, context):
        job_id = self.client.submit(self.report)
        while (status := self.client.status(job_id)) == "RUNNING":
            time.sleep(30)
        if status != "SUCCEEDED":
            raise RuntimeError(f"report {job_id}: {status}")
        return self.client.output(job_id)
