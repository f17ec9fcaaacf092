"""What the demo does, and how it is counted."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from airflow_state_watchers.demo.airflow import Airflow
from airflow_state_watchers.demo.servers import MotoServer

BUCKET, PREFIX, ASSET, DAG_ID = "lake", "orders/", "orders", "load_orders"

DAG = '''
"""The demo's DAG: it notes each object version that it processes, one JSON line each."""
import json
import time

from airflow.sdk import DAG, Asset, AssetWatcher, task
from airflow_state_watchers import Inbox, S3PrefixWatermarkTrigger

orders = Asset("{asset}", uri="s3://{bucket}/{prefix}", watchers=[AssetWatcher(
    name="new_orders", trigger=S3PrefixWatermarkTrigger("{bucket}", prefix="{prefix}", poll_interval=5))])

with DAG("{dag_id}", schedule=[orders], max_active_runs=1):
    @task(inlets=[orders], retries=3)
    def load():
        with Inbox(orders) as inbox, open("{notes}", "a") as notes:
            for obj in inbox.objects():
                notes.write(json.dumps([obj.key, obj.etag]) + "\\n")
        time.sleep({seconds})
    load()
'''

Version = tuple[str, str]
"""Key and ETag."""


@dataclass
class Facts:
    """What can be seen of the demo at one moment."""

    uploaded: int = 0
    events: int = 0
    delivered: int = 0
    """Objects in events, repeats included."""
    processed: Counter[Version] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)
    watermark: str = "-"

    @property
    def idle(self) -> bool:
        return not (self.runs["running"] or self.runs["queued"])


class Stage:
    """The servers, the DAG, the objects uploaded so far; and :meth:`look`, which counts."""

    def __init__(self, airflow: Airflow, s3: MotoServer, seconds: float) -> None:
        self.airflow, self.s3 = airflow, s3
        self.notes = airflow.home / "processed.jsonl"
        self.uploaded: set[Version] = set()
        self.kills = 0
        self._events: list[dict[str, Any]] = []
        s3.create_bucket(BUCKET)
        source = DAG.format(asset=ASSET, bucket=BUCKET, prefix=PREFIX, dag_id=DAG_ID, notes=self.notes, seconds=seconds)
        airflow.write_dag(DAG_ID, source)
        airflow.wait_for_dag(DAG_ID)
        airflow.wait_for(self._root, 120, "the watcher's first checkpoint")

    def upload(self, bodies: dict[str, bytes]) -> None:
        """Upload objects and note their versions."""
        from hashlib import md5

        for key, body in bodies.items():
            self.uploaded.add((PREFIX + key, md5(body, usedforsecurity=False).hexdigest()))
        self.s3.put_many(BUCKET, {PREFIX + key: body for key, body in bodies.items()})

    def kill(self) -> None:
        """``kill -9`` the triggerer, and start a new one."""
        self.airflow.kill("triggerer")
        self.kills += 1
        self.airflow.start("triggerer")

    def look(self) -> Facts:
        rest = self.airflow.rest
        since = _time(self._events[-1]) if self._events else None
        known = {event["id"] for event in self._events}
        self._events += [event for event in rest.asset_events(ASSET, since=since) if event["id"] not in known]
        root = self._root() or {}
        return Facts(
            uploaded=len(self.uploaded),
            events=len(self._events),
            delivered=sum(event["extra"]["payload"]["count"] for event in self._events),
            processed=Counter(processed(self.notes)),
            runs=Counter(run["state"] for run in rest.dag_runs(DAG_ID)),
            watermark=_place(root.get("watermark")),
        )

    def is_done(self, facts: Facts) -> bool:
        return facts.idle and self.uploaded <= set(facts.processed)

    def _root(self) -> Any:
        return self.airflow.rest.state(ASSET, f"state_watchers:s3://{BUCKET}/{PREFIX}")


def processed(notes: Path) -> Iterator[Version]:
    """Read which versions the DAG has noted."""
    if notes.exists():
        for line in notes.read_text().splitlines():
            key, etag = json.loads(line)
            yield key, etag


def _time(event: dict[str, Any]) -> datetime:
    text = event["timestamp"]
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(timezone.utc)


def _place(watermark: Any) -> str:
    if not watermark:
        return "-"
    time = str(watermark["value"])[11:19]
    return f"{time} {watermark['tiebreak']}".strip()


@contextmanager
def beside(work: Any) -> Iterator[threading.Thread]:
    """Run something beside the block, and raise what it raised when the block is over."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield thread
    thread.join()
    if errors:
        raise errors[0]
