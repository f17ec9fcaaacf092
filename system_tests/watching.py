"""DAG files with a watcher, and how to read what it did."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

from airflow_state_watchers.demo.airflow import Airflow
from airflow_state_watchers.demo.servers import MotoServer

DAG = """
from airflow.sdk import DAG, Asset, AssetWatcher, task
from airflow_state_watchers import S3PrefixWatermarkTrigger

{name} = Asset("{name}", uri="s3://watched/{name}/", watchers=[AssetWatcher(
    name="new_{name}", trigger=S3PrefixWatermarkTrigger("{bucket}", prefix="orders/", {arguments}))])

with DAG("{name}", schedule=[{name}], max_active_runs=1):
    @task
    def load(triggering_asset_events):
        return [event.extra["payload"]["count"] for events in triggering_asset_events.values() for event in events]
    load()
"""


class Watched:
    """One asset with a watcher, and the DAG that it schedules, all of one name."""

    def __init__(self, airflow: Airflow, name: str, bucket: str, /, **arguments: Any) -> None:
        self.airflow, self.rest, self.name, self.bucket = airflow, airflow.rest, name, bucket
        self.arguments = {"poll_interval": 5, **arguments}
        self.watcher = arguments.get("name") or f"s3://{bucket}/orders/"

    def source(self, **arguments: Any) -> str:
        self.arguments.update(arguments)
        text = ", ".join(f"{key}={value!r}" for key, value in self.arguments.items())
        return DAG.format(name=self.name, bucket=self.bucket, arguments=text)

    def write(self, **arguments: Any) -> None:
        """Write the DAG file, with changed arguments, and wait until Airflow has read it."""
        before = datetime.now(timezone.utc)
        self.airflow.write_dag(self.name, self.source(**arguments))
        self.airflow.wait_for_dag(self.name, parsed_after=before)

    def begin(self) -> Watched:
        self.write()
        self.airflow.wait_for(self.root, 90, f"the first checkpoint of {self.name}")
        return self

    def root(self) -> Any:
        return self.rest.state(self.name, f"state_watchers:{self.watcher}")

    def health(self) -> Any:
        return self.rest.state(self.name, f"state_watchers.health:{self.watcher}")

    def payloads(self) -> list[dict[str, Any]]:
        return [event["extra"]["payload"] for event in self.rest.asset_events(self.name)]

    def keys(self, *, generation: int | None = None) -> list[str]:
        """All keys in events, each batch counted once however often it was delivered."""
        batches = {
            payload["batch_id"]: payload
            for payload in self.payloads()
            if generation is None or payload["generation"] == generation
        }
        return sorted(item["key"] for payload in batches.values() for item in payload["items"])

    def wait_for_keys(self, expected: list[str], timeout: float = 90) -> None:
        self.airflow.wait_for(
            lambda: set(self.keys()) >= set(expected), timeout, f"{len(expected)} objects of {self.name}"
        )

    def wait_until_committed(self) -> None:
        self.airflow.wait_for(lambda: not self.root()["intents"], 60, f"the commit of {self.name}")


@contextmanager
def uploading(s3: MotoServer, bucket: str, every: float = 0.25) -> Iterator[list[str]]:
    """Put an object every so often while the block runs; yields the list of the keys put so far."""
    keys: list[str] = []
    stop = threading.Event()

    def upload() -> None:
        while not stop.wait(every):
            key = f"orders/{len(keys):05}"
            s3.put(bucket, key, b"x")
            keys.append(key)

    thread = threading.Thread(target=upload)
    thread.start()
    try:
        yield keys
    finally:
        stop.set()
        thread.join()
