"""An object becomes a DAG run, whatever happens to the triggerer meanwhile."""

from __future__ import annotations

from typing import Any

from airflow_state_watchers.demo.airflow import Airflow
from airflow_state_watchers.demo.servers import MotoServer

DAG = """
from airflow.sdk import DAG, Asset, AssetWatcher, task
from airflow_state_watchers import S3PrefixWatermarkTrigger

{name} = Asset("{name}", uri="s3://{bucket}/orders/", watchers=[AssetWatcher(
    name="new_{name}", trigger=S3PrefixWatermarkTrigger("{bucket}", prefix="orders/", poll_interval=5, {arguments}))])

with DAG("{name}", schedule=[{name}], max_active_runs=1):
    @task
    def load(triggering_asset_events):
        return [event.extra["payload"]["count"] for events in triggering_asset_events.values() for event in events]
    load()
"""


def write(airflow: Airflow, name: str, bucket: str, arguments: str = "") -> None:
    airflow.write_dag(name, DAG.format(name=name, bucket=bucket, arguments=arguments))
    airflow.wait_for_dag(name)
    airflow.wait_for(lambda: root(airflow, name, bucket), 60, "the first checkpoint")


def root(airflow: Airflow, name: str, bucket: str) -> Any:
    return airflow.rest.state(name, f"state_watchers:s3://{bucket}/orders/")


def payloads(airflow: Airflow, name: str) -> list[dict[str, Any]]:
    return [event["extra"]["payload"] for event in airflow.rest.asset_events(name)]


def keys(airflow: Airflow, name: str) -> list[str]:
    return [item["key"] for payload in payloads(airflow, name) for item in payload["items"]]


def test_an_object_starts_a_dag_run_with_the_right_payload(airflow: Airflow, s3: MotoServer, bucket: str) -> None:
    s3.put(bucket, "orders/old.csv", b"before")
    write(airflow, "simple", bucket)
    s3.put(bucket, "orders/a.csv", b"hello")
    s3.put(bucket, "other/b.csv", b"elsewhere")
    runs = airflow.wait_for(
        lambda: [run for run in airflow.rest.dag_runs("simple") if run["state"] == "success"], 90, "a run of simple"
    )
    (payload,) = payloads(airflow, "simple")
    (item,) = payload["items"]
    assert item["key"] == "orders/a.csv"
    assert item["size"] == 5
    assert item["etag"] == "5d41402abc4b2a76b9719d911017c592"
    assert payload["bucket"] == bucket
    assert (payload["count"], payload["generation"], payload["previous"]) == (1, 1, None)
    assert airflow.rest.xcom("simple", runs[0]["dag_run_id"], "load") == [1]
    airflow.wait_for(lambda: not root(airflow, "simple", bucket)["intents"], 30, "the commit")
    assert root(airflow, "simple", bucket)["watermark"]["tiebreak"] == "orders/a.csv"
    log = airflow.log("triggerer")
    fired = [line for line in log.splitlines() if "Trigger fired event" in line]
    assert fired
    assert all(len(line) < 600 for line in fired)
    assert "orders/a.csv" not in log


def test_a_triggerer_killed_between_deliveries_loses_nothing(airflow: Airflow, s3: MotoServer, bucket: str) -> None:
    write(airflow, "killed", bucket, "max_objects_per_event=20")
    names = [f"orders/{number:04}" for number in range(300)]
    for start in range(0, 300, 100):
        s3.put_many(bucket, names[start : start + 100])
        seen = len(payloads(airflow, "killed"))
        airflow.wait_for(lambda seen=seen: len(payloads(airflow, "killed")) > seen, 90, "events of this wave")
        airflow.kill("triggerer")
        airflow.start("triggerer")
    airflow.wait_for(lambda: set(keys(airflow, "killed")) >= set(names), 120, "all objects in events")
    batches = {payload["batch_id"]: payload for payload in payloads(airflow, "killed")}
    unique = [item["key"] for payload in batches.values() for item in payload["items"]]
    assert sorted(unique) == names, "every repeat has the batch id of what it repeats"
