"""The example of docs/howto/load_rows.rst: the same with MERGE, which PostgreSQL has from version 15 on."""

from airflow.sdk import DAG, Asset, BaseHook, task

from airflow_state_watchers import Inbox

orders = Asset("orders")

with DAG("load_orders", schedule=[orders], max_active_runs=1):
    # [START task]
    @task(inlets=[orders], retries=5)
    def load():
        hook = BaseHook.get_connection("shop").get_hook()
        with Inbox(orders) as inbox:
            for window in inbox.windows():
                p = window.predicate("o")
                hook.run(
                    f"""
                    MERGE INTO warehouse.orders t
                    USING (SELECT o.* FROM public.orders o WHERE {p.sql}) s ON t.id = s.id
                    WHEN MATCHED AND t.updated_at <= s.updated_at THEN
                        UPDATE SET status = s.status, total = s.total, updated_at = s.updated_at
                    WHEN NOT MATCHED THEN
                        INSERT (id, status, total, updated_at) VALUES (s.id, s.status, s.total, s.updated_at)
                    """,
                    parameters=p.parameters,
                )
                inbox.commit()

    # [END task]
    load()
