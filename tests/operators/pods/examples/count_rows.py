from airflow.sdk import BaseOperator
from kubernetes.client import models as k8s

from airflow_state_watchers import PodResumeMixin


class CountRows(PodResumeMixin, BaseOperator):
    def __init__(self, *, table, **kwargs):
        super().__init__(**kwargs)
        self.table = table

    def build_pod_request_obj(self, context):
        count = k8s.V1Container(name="count", image="registry/count:7", args=[self.table])
        return k8s.V1Pod(
            metadata=k8s.V1ObjectMeta(namespace="etl", generate_name="count-rows-"),
            spec=k8s.V1PodSpec(containers=[count], restart_policy="Never"),
        )

    def execute(self, context):
        pod = self.execute_pod(context)
        return pod.status.container_statuses[0].state.terminated.message
