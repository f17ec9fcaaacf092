"""An object becomes a DAG run, whatever happens to the triggerer meanwhile."""

from __future__ import annotations

from airflow_state_watchers.demo.airflow import Airflow
from airflow_state_watchers.demo.servers import MotoServer
from system_tests.watching import Watched


def test_an_object_starts_a_dag_run_with_the_right_payload(airflow: Airflow, s3: MotoServer, bucket: str) -> None:
    s3.put(bucket, "orders/old.csv", b"before")
    watched = Watched(airflow, "simple", bucket).begin()
    s3.put(bucket, "orders/a.csv", b"hello")
    s3.put(bucket, "other/b.csv", b"elsewhere")
    runs = airflow.wait_for(
        lambda: [run for run in airflow.rest.dag_runs("simple") if run["state"] == "success"], 90, "a run of simple"
    )
    (payload,) = watched.payloads()
    (item,) = payload["items"]
    assert item["key"] == "orders/a.csv"
    assert item["size"] == 5
    assert item["etag"] == "5d41402abc4b2a76b9719d911017c592"
    assert payload["bucket"] == bucket
    assert (payload["count"], payload["generation"], payload["previous"]) == (1, 1, None)
    assert airflow.rest.xcom("simple", runs[0]["dag_run_id"], "load") == [1]
    watched.wait_until_committed()
    assert watched.root()["watermark"]["tiebreak"] == "orders/a.csv"
    log = airflow.log("triggerer")
    fired = [line for line in log.splitlines() if "Trigger fired event" in line]
    assert fired
    assert all(len(line) < 600 for line in fired)
    assert "orders/a.csv" not in log


def test_a_triggerer_killed_between_deliveries_loses_nothing(airflow: Airflow, s3: MotoServer, bucket: str) -> None:
    watched = Watched(airflow, "killed", bucket, max_objects_per_event=20).begin()
    names = [f"orders/{number:04}" for number in range(300)]
    for start in range(0, 300, 100):
        s3.put_many(bucket, names[start : start + 100])
        seen = len(watched.payloads())
        airflow.wait_for(lambda seen=seen: len(watched.payloads()) > seen, 90, "events of this wave")
        airflow.kill("triggerer")
        airflow.start("triggerer")
    watched.wait_for_keys(names, 120)
    assert watched.keys() == names, "every repeat has the batch id of what it repeats"
