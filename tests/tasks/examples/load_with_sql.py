"""The example of docs/howto/load_rows.rst: a copy of a table, kept by plain SQL in the same database."""

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
                    INSERT INTO warehouse.orders AS t (id, status, total, updated_at)
                    SELECT o.id, o.status, o.total, o.updated_at FROM public.orders o WHERE {p.sql}
                    ON CONFLICT (id) DO UPDATE
                    SET status = excluded.status, total = excluded.total, updated_at = excluded.updated_at
                    WHERE t.updated_at <= excluded.updated_at
                    """,
                    parameters=p.parameters,
                )
                inbox.commit()

    # [END task]
    load()
