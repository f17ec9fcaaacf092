"""The example of docs/howto/load_rows.rst: rows on their way to another database, through dlt."""

import dlt
from airflow.sdk import DAG, Asset, BaseHook, task

from airflow_state_watchers import Inbox

orders = Asset("orders")

with DAG("load_orders", schedule=[orders], max_active_runs=1):
    # [START task]
    @task(inlets=[orders], retries=5)
    def load():
        warehouse = BaseHook.get_connection("warehouse").get_uri()
        pipeline = dlt.pipeline("load_orders", destination=dlt.destinations.postgres(warehouse), dataset_name="raw")
        with Inbox(orders) as inbox:
            for window in inbox.windows():
                rows = dlt.resource(
                    window.rows(),
                    name="orders",
                    write_disposition="merge",
                    primary_key=window.key_columns,
                )
                pipeline.run(rows).raise_on_failed_jobs()
                inbox.commit()

    # [END task]
    load()
