"""What happens to watchers in production: edits, pauses, broken files, moved watermarks, a second triggerer, errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from airflow_state_watchers.demo.airflow import Airflow, moment
from airflow_state_watchers.demo.servers import MotoServer
from system_tests.watching import Watched, uploading


@pytest.mark.soak
def test_ten_edits_and_five_pauses_under_load_lose_nothing(airflow: Airflow, s3: MotoServer, bucket: str) -> None:
    watched = Watched(airflow, "edited", bucket).begin()
    with uploading(s3, bucket) as put:
        for number in range(10):
            watched.write(poll_interval=5 + number % 3)
            if number % 2:
                airflow.pause("edited")
                seen = len(put)
                airflow.wait_for(lambda seen=seen: len(put) > seen + 20, 60, "more uploads")
                airflow.unpause("edited")
            seen = len(watched.payloads())
            airflow.wait_for(lambda seen=seen: len(watched.payloads()) > seen, 90, "an event after the edit")
    watched.wait_for_keys(put)
    assert watched.keys() == put


@pytest.mark.soak
def test_two_assets_with_names_are_independent_while_one_is_paused(
    airflow: Airflow, s3: MotoServer, bucket: str
) -> None:
    one = Watched(airflow, "one", bucket, name="one").begin()
    other = Watched(airflow, "other", bucket, name="other").begin()
    with uploading(s3, bucket, every=0.5) as put:
        airflow.pause("other")
        began = datetime.now(timezone.utc)
        airflow.wait_for(lambda: datetime.now(timezone.utc) - began > timedelta(minutes=5), 400, "five minutes")
        airflow.unpause("other")
    one.wait_for_keys(put)
    other.wait_for_keys(put)
    assert one.keys() == other.keys() == put


TWINS = """
from airflow.sdk import DAG, Asset, AssetWatcher, task
from airflow_state_watchers import S3PrefixWatermarkTrigger

assets = []
for name in ("twin_a", "twin_b"):
    asset = Asset(name, uri=f"s3://{bucket}/{{name}}/", watchers=[AssetWatcher(
        name="w", trigger=S3PrefixWatermarkTrigger("{bucket}", prefix="orders/", poll_interval=5, start="earliest"))])
    with DAG(name, schedule=[asset]) as dag:
        @task
        def load(): ...
        load()
    globals()[name] = dag
"""


def test_two_assets_with_equal_arguments_get_nothing_and_are_told(
    airflow: Airflow, s3: MotoServer, bucket: str
) -> None:
    s3.put(bucket, "orders/a", b"x")
    airflow.write_dag("twins", TWINS.format(bucket=bucket))
    airflow.wait_for_dag("twin_a")
    for name in ("twin_a", "twin_b"):
        key = f"state_watchers.health:s3://{bucket}/orders/"
        record = airflow.wait_for(lambda name=name, key=key: airflow.rest.state(name, key), 90, f"the health of {name}")
        assert "name=" in record["last_error"]["message"]
        assert airflow.rest.asset_events(name) == []
    assert "are watched with equal arguments" in airflow.log("triggerer")


@pytest.mark.parametrize("start", ["latest", "earliest"])
@pytest.mark.soak
def test_a_broken_dag_file_loses_and_repeats_nothing(airflow: Airflow, s3: MotoServer, bucket: str, start: str) -> None:
    watched = Watched(airflow, f"broken_{start}", bucket, start=start).begin()
    s3.put(bucket, "orders/before", b"x")
    watched.wait_for_keys(["orders/before"])
    watched.wait_until_committed()
    airflow.write_dag(watched.name, "this is no Python\n")
    airflow.wait_for(lambda: is_inactive(watched), 180, "the scheduler to deactivate the asset")
    began = datetime.now(timezone.utc)
    lines = len(airflow.log("triggerer").splitlines())
    s3.put(bucket, "orders/during", b"x")
    airflow.wait_for(lambda: datetime.now(timezone.utc) - began > timedelta(seconds=40), 60, "40 s")
    assert len(airflow.log("triggerer").splitlines()) - lines < 60, "no hot loop"
    mended = datetime.now(timezone.utc)
    watched.write()
    watched.wait_for_keys(["orders/before", "orders/during"], 240)
    last = watched.rest.asset_events(watched.name)[-1]
    assert moment(last["timestamp"]) > mended, "nothing is delivered while the asset is not active"
    s3.put(bucket, "orders/after", b"x")
    watched.wait_for_keys(["orders/before", "orders/during", "orders/after"])
    watched.wait_until_committed()
    assert watched.root()["generation"] == 1
    assert [payload["count"] for payload in watched.payloads()] == [1, 1, 1]
    assert "was lost" in airflow.log("triggerer")


@pytest.mark.parametrize(("start", "again"), [("latest", False), ("earliest", True)])
@pytest.mark.soak
def test_a_broken_dag_file_and_a_restarted_triggerer_follow_the_start_policy(
    airflow: Airflow, s3: MotoServer, bucket: str, start: str, again: bool
) -> None:
    watched = Watched(airflow, f"forgotten_{start}", bucket, start=start).begin()
    s3.put(bucket, "orders/before", b"x")
    watched.wait_for_keys(["orders/before"])
    watched.wait_until_committed()
    airflow.write_dag(watched.name, "this is no Python\n")
    airflow.wait_for(lambda: is_inactive(watched), 180, "the scheduler to deactivate the asset")
    airflow.restart("triggerer")
    airflow.wait_until_ready("triggerer")
    airflow.wait_for(lambda: "did not take a write" in tail(airflow, watched), 120, "the watcher to be refused")
    watched.write()
    airflow.wait_for(watched.root, 240, "a new checkpoint")
    assert "starts anew" in tail(airflow, watched)
    s3.put(bucket, "orders/after", b"x")
    watched.wait_for_keys(["orders/after"])
    assert (
        len([payload for payload in watched.payloads() if payload["items"][0]["key"] == "orders/before"]) == 1 + again
    )


def tail(airflow: Airflow, watched: Watched) -> str:
    return "\n".join(line for line in airflow.log("triggerer").splitlines() if watched.watcher in line)


def is_inactive(watched: Watched) -> bool:
    return not watched.rest.states(watched.name)


def test_a_moved_watermark_is_adopted_without_a_restart(airflow: Airflow, s3: MotoServer, bucket: str) -> None:
    watched = Watched(airflow, "moved", bucket, start="earliest")
    old = datetime.now(timezone.utc) - timedelta(minutes=90)
    s3.plant(bucket, ["orders/90min"], stamp=old)
    s3.plant(bucket, ["orders/30min"], stamp=old + timedelta(minutes=60))
    watched.begin().wait_for_keys(["orders/30min", "orders/90min"])
    watched.wait_until_committed()
    an_hour_ago = (datetime.now(timezone.utc) - timedelta(hours=1)).isoformat()
    key = f"state_watchers:{watched.watcher}"
    airflow.rest.put_state("moved", key, {**watched.root(), "watermark": an_hour_ago})
    airflow.wait_for(lambda: watched.keys(generation=2) == ["orders/30min"], 60, "the hour to come again")
    watched.wait_until_committed()
    ahead = (datetime.now(timezone.utc) + timedelta(seconds=20)).isoformat()
    airflow.rest.put_state("moved", key, {**watched.root(), "watermark": ahead})
    s3.put(bucket, "orders/skipped", b"x")
    airflow.wait_for(lambda: watched.root()["generation"] == 3, 60, "the move forward")
    airflow.wait_for(lambda: datetime.now(timezone.utc).isoformat() > ahead, 60, "the time it was moved to")
    s3.put(bucket, "orders/new", b"x")
    airflow.wait_for(lambda: watched.keys(generation=3) == ["orders/new"], 60, "what is new after the move")
    watched.wait_until_committed()
    airflow.rest.delete_state("moved", key)
    everything = ["orders/30min", "orders/90min", "orders/new", "orders/skipped"]
    airflow.wait_for(lambda: watched.keys(generation=4) == everything, 60, "the start policy after a reset")
    assert "orders/skipped" not in watched.keys(generation=3)


@pytest.mark.soak
def test_a_second_triggerer_is_never_taken_for_a_person(airflow: Airflow, s3: MotoServer, bucket: str) -> None:
    watched = Watched(airflow, "adopted", bucket).begin()
    with uploading(s3, bucket) as put:
        for _ in range(2):
            airflow.pieces.freeze("triggerer")
            airflow.start("triggerer-2")
            airflow.wait_until_ready("triggerer-2")
            seen = len(watched.payloads())
            airflow.wait_for(lambda seen=seen: len(watched.payloads()) > seen, 120, "events from the second triggerer")
            airflow.pieces.thaw("triggerer")
            seen = len(watched.payloads())
            airflow.wait_for(lambda seen=seen: len(watched.payloads()) > seen + 2, 120, "events with both")
            airflow.stop("triggerer-2")
    watched.wait_for_keys(put, 180)
    assert watched.keys() == put
    assert watched.root()["generation"] == 1


@pytest.mark.soak
def test_an_idle_watcher_writes_its_health_only(airflow: Airflow, s3: MotoServer, bucket: str) -> None:
    s3.put(bucket, "orders/old", b"x")
    watched = Watched(airflow, "idle", bucket).begin()
    airflow.wait_for(watched.health, 90, "the first health record")
    before = {state["key"]: state["updated_at"] for state in airflow.rest.states("idle")}
    health = set()
    end = datetime.now(timezone.utc) + timedelta(minutes=3)

    def over() -> bool:
        health.add(watched.health()["last_poll"])
        return datetime.now(timezone.utc) > end

    airflow.wait_for(over, 240, "three idle minutes")
    after = {state["key"]: state["updated_at"] for state in airflow.rest.states("idle")}
    assert {key for key in after if after[key] != before.get(key)} == {f"state_watchers.health:{watched.watcher}"}
    assert 2 <= len(health) <= 4
    assert airflow.rest.asset_events("idle") == []
    assert airflow.rest.dag_runs("idle") == []
    airflow.stop("triggerer")
    s3.put(bucket, "orders/while it was down", b"x")
    airflow.start("triggerer")
    watched.wait_for_keys(["orders/while it was down"])
    assert watched.keys() == ["orders/while it was down"]


def test_a_wrong_bucket_is_loud_and_recovers_when_mended(airflow: Airflow, s3: MotoServer, bucket: str) -> None:
    watched = Watched(airflow, "nobucket", f"{bucket}-later")
    watched.write()
    record = airflow.wait_for(watched.health, 90, "a health record")
    assert record["state"] == "failing"
    assert f"{bucket}-later" in record["last_error"]["message"]
    s3.create_bucket(f"{bucket}-later")
    airflow.wait_for(watched.root, 120, "the first checkpoint once the bucket exists")
    s3.put(f"{bucket}-later", "orders/a", b"x")
    watched.wait_for_keys(["orders/a"])


def test_a_wrong_connection_is_loud_and_recovers_when_mended(airflow: Airflow, s3: MotoServer, bucket: str) -> None:
    watched = Watched(airflow, "noconn", bucket, aws_conn_id="forgotten")
    watched.write()
    record = airflow.wait_for(watched.health, 90, "a health record")
    assert "forgotten" in record["last_error"]["message"]
    assert record["consecutive_failures"] < 10
    connection = {**s3.connection, "connection_id": "forgotten"}
    airflow.rest.request("POST", "/connections", json=rest_connection(connection))
    airflow.wait_for(watched.root, 120, "the first checkpoint once the connection exists")
    s3.put(bucket, "orders/a", b"x")
    watched.wait_for_keys(["orders/a"])
    log = airflow.log("triggerer")
    assert str(s3.connection.get("password") or s3.connection.get("extra")) not in log


def rest_connection(connection: dict[str, Any]) -> dict[str, Any]:
    extra = connection.get("extra")
    return {
        "connection_id": connection["connection_id"],
        "conn_type": connection.get("conn_type", "aws"),
        "login": connection.get("login"),
        "password": connection.get("password"),
        "extra": extra if isinstance(extra, str) or extra is None else json.dumps(extra),
    }


def test_another_source_under_one_name_stops_and_says_so(airflow: Airflow, s3: MotoServer, bucket: str) -> None:
    watched = Watched(airflow, "renamed", bucket, name="renamed").begin()
    s3.put(bucket, "orders/a", b"x")
    watched.wait_for_keys(["orders/a"])
    watched.wait_until_committed()
    s3.create_bucket(f"{bucket}-b")
    watched.bucket = f"{bucket}-b"
    watched.write()
    says: Callable[[], Any] = lambda: "on_source_change" in str(watched.health()["last_error"])  # noqa: E731
    airflow.wait_for(says, 120, "the watcher to say that its source has changed")
    s3.put(f"{bucket}-b", "orders/b", b"x")
    watched.write(on_source_change="start", start="earliest")
    watched.wait_for_keys(["orders/a", "orders/b"])
    assert watched.root()["generation"] == 2
