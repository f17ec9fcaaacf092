"""The laws of the inbox, each on a real Airflow: what a task took is done when it has succeeded, and never twice."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from airflow_state_watchers.demo.airflow import Airflow
from airflow_state_watchers.demo.servers import MotoServer

HEAD = """
import json, os, time
from airflow.sdk import DAG, Asset, AssetWatcher, task, get_current_context
from airflow_state_watchers import Inbox, S3PrefixWatermarkTrigger

def note(**what):
    context = get_current_context()
    what = {{**what, "dag": context["dag"].dag_id, "run": context["run_id"], "map": context["ti"].map_index}}
    with open("{notes}", "a") as file:
        file.write(json.dumps(what) + "\\n")

def told(what):
    return os.path.exists(f"{notes}.{{what}}")

asset = Asset("{name}", uri="s3://{bucket}/{name}/", watchers=[AssetWatcher(
    name="w", trigger=S3PrefixWatermarkTrigger("{bucket}", prefix="orders/", poll_interval=5, start="earliest"))])
"""


class Consumed:
    """An asset with a watcher, the DAGs that read it, and what their tasks noted."""

    def __init__(self, airflow: Airflow, s3: MotoServer, bucket: str, name: str, tmp_path: Path) -> None:
        self.airflow, self.rest, self.s3, self.bucket, self.name = airflow, airflow.rest, s3, bucket, name
        self.notes = tmp_path / "notes"
        self.notes.touch()

    def write(self, body: str, *dag_ids: str) -> None:
        head = HEAD.format(name=self.name, bucket=self.bucket, notes=self.notes)
        self.airflow.write_dag(self.name, head + body)
        for dag_id in dag_ids or (self.name,):
            self.airflow.wait_for_dag(dag_id)

    def tell(self, what: str, *, off: bool = False) -> None:
        """Set a switch that tasks look at."""
        path = Path(f"{self.notes}.{what}")
        path.unlink(missing_ok=True) if off else path.touch()

    def put(self, *names: str) -> None:
        for name in names:
            self.s3.put(self.bucket, f"orders/{name}", b"x")

    def noted(self, **where: Any) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.notes.read_text().splitlines()]
        return [line for line in lines if all(line.get(key) == value for key, value in where.items())]

    def keys(self, **where: Any) -> list[str]:
        return [line["key"].removeprefix("orders/") for line in self.noted(**where)]

    def wait_for_keys(self, expected: list[str], timeout: float = 120, **where: Any) -> None:
        self.airflow.wait_for(
            lambda: len(self.keys(**where)) >= len(expected), timeout, f"{len(expected)} items in tasks of {self.name}"
        )
        assert sorted(self.keys(**where)) == sorted(expected)

    def runs(self, state: str, dag_id: str | None = None) -> list[dict[str, Any]]:
        return [run for run in self.rest.dag_runs(dag_id or self.name) if run["state"] == state]

    def wait_for_runs(self, state: str, count: int, dag_id: str | None = None, timeout: float = 120) -> list[Any]:
        return self.airflow.wait_for(
            lambda: (runs := self.runs(state, dag_id)) and len(runs) >= count and runs,
            timeout,
            f"{count} {state} runs of {dag_id or self.name}",
        )

    def wait_until_idle(self, dag_id: str | None = None) -> None:
        """Wait until no run is going on or due."""
        self.airflow.wait_for(
            lambda: (
                not self.runs("running", dag_id)
                and not self.runs("queued", dag_id)
                and not self.rest.queued_events(dag_id or self.name)
            ),
            120,
            "no run to be left",
        )


@pytest.fixture
def consume(airflow: Airflow, s3: MotoServer, bucket: str, tmp_path: Path, request: pytest.FixtureRequest) -> Consumed:
    return Consumed(airflow, s3, bucket, request.node.originalname.removeprefix("test_")[:60], tmp_path)


ONE_TASK = """
with DAG("{name}", schedule=[asset], max_active_runs=1):
    @task(inlets=[asset])
    def load():
        with Inbox(asset) as inbox:
            print("inbox:", len(inbox))
            for obj in inbox.objects():
                note(key=obj.key, size=obj.size, etag=obj.etag, at=obj.last_modified.isoformat())
            time.sleep({seconds})
    load()
"""


def test_a_burst_with_two_kills_is_processed_exactly_once(consume: Consumed) -> None:
    consume.write(ONE_TASK.format(name=consume.name, seconds=4))
    names = [f"{number:05}" for number in range(2500)]
    consume.s3.put_many(consume.bucket, [f"orders/{name}" for name in names])
    for _ in range(2):
        seen = len(consume.rest.asset_events(consume.name))
        consume.airflow.wait_for(
            lambda seen=seen: len(consume.rest.asset_events(consume.name)) > seen, 120, "an event before the kill"
        )
        consume.airflow.kill("triggerer")
        consume.airflow.start("triggerer")
    # No later upload wakes anything: what is stuck now stays stuck.
    consume.wait_for_keys(names, 300)
    consume.wait_until_idle()
    assert set(Counter(consume.keys()).values()) == {1}
    delivered = sum(event["extra"]["payload"]["count"] for event in consume.rest.asset_events(consume.name))
    print(f"{delivered - len(names)} repeats dropped")


FAILING = """
with DAG("{name}", schedule=[asset], max_active_runs=1):
    @task(inlets=[asset], retries=1, retry_delay=1)
    def load():
        with Inbox(asset) as inbox:
            for number, obj in enumerate(inbox.objects()):
                note(key=obj.key)
                if told("fail") and number == 1:
                    raise RuntimeError("as told")
    load()
"""


def test_failed_after_half_then_taken_over(consume: Consumed) -> None:
    consume.write(
        FAILING.format(name=consume.name).replace(
            "retry_delay=1", "retry_delay=__import__('datetime').timedelta(seconds=1)"
        )
    )
    consume.tell("fail")
    consume.put("a", "b", "c", "d")
    (failed, *_) = consume.wait_for_runs("failed", 1)
    assert consume.keys() == ["a", "b", "a", "b"], "the retry gets its own take again"
    consume.tell("fail", off=True)
    consume.put("e")
    consume.wait_for_runs("success", 1)
    assert consume.keys()[4:] == ["a", "b", "c", "d", "e"], "the next run takes over what was not done, in order"
    consume.rest.clear_run(consume.name, failed["dag_run_id"])
    consume.wait_until_idle()
    assert len(consume.keys()) == 9, "a cleared failed run gives only what nobody has finished since"


def test_a_cleared_old_run_gets_its_items_again(consume: Consumed) -> None:
    consume.write(ONE_TASK.format(name=consume.name, seconds=0))
    consume.put("a")
    (first, *_) = consume.wait_for_runs("success", 1)
    consume.put("b")
    consume.wait_for_runs("success", 2)
    consume.rest.clear_run(consume.name, first["dag_run_id"])
    consume.wait_for_keys(["a", "b", "a"])
    consume.wait_until_idle()
    consume.put("c")
    consume.wait_for_keys(["a", "b", "a", "c"])
    assert consume.keys(run=first["dag_run_id"]) == ["a", "a"]


TWO_DAGS = """
for dag_id, consumer in (("{name}_x", None), ("{name}_{second}", "the second")):
    with DAG(dag_id, schedule=[asset], max_active_runs=1) as dag:
        @task(inlets=[asset])
        def load(consumer=consumer):
            with Inbox(asset, consumer=consumer) as inbox:
                for obj in inbox.objects():
                    note(key=obj.key)
        load()
    globals()[dag_id] = dag
"""


def test_two_dags_and_a_renamed_one(consume: Consumed) -> None:
    name = consume.name
    consume.write(TWO_DAGS.format(name=name, second="y"), f"{name}_x", f"{name}_y")
    consume.put("a", "b")
    consume.wait_for_keys(["a", "b"], dag=f"{name}_x")
    consume.wait_for_keys(["a", "b"], dag=f"{name}_y")
    consume.wait_until_idle(f"{name}_y")
    consume.write(TWO_DAGS.format(name=name, second="z"), f"{name}_z")
    consume.put("c")
    consume.wait_for_keys(["c"], dag=f"{name}_z")
    consume.wait_for_keys(["a", "b", "c"], dag=f"{name}_x")


MAPPED = """
with DAG("{name}", schedule=[asset], max_active_runs=1):
    @task(inlets=[asset])
    def take():
        return Inbox(asset).take(group=100, done_by="copy")

    @task
    def copy(objects):
        for obj in objects:
            assert type(obj).__name__ == "S3Object" and obj.uri == f"s3://{{obj.bucket}}/{{obj.key}}", type(obj)
            if told("fail") and obj.key.endswith("00042"):
                raise RuntimeError("as told")
        for obj in objects:
            note(key=obj.key, year=obj.last_modified.year)
    copy.expand(objects=take())
"""


@pytest.mark.soak
def test_expand_over_2500_objects(consume: Consumed) -> None:
    """One mapped index fails for good, and only its items come again."""
    consume.write(MAPPED.format(name=consume.name))
    consume.tell("fail")
    names = [f"{number:05}" for number in range(2500)]
    consume.s3.plant(consume.bucket, [f"orders/{name}" for name in names])
    consume.airflow.wait_for(lambda: consume.runs("failed") or consume.runs("success"), 900, "the mapped run to end")
    consume.wait_until_idle()
    missing = set(names) - set(consume.keys())
    assert len(consume.keys()) == len(set(consume.keys()))
    assert len(missing) == 100
    assert "00042" in missing
    consume.tell("fail", off=True)
    consume.put("new")
    consume.wait_for_keys([*names, "new"], 300)


CLASSIC = """
from airflow.providers.standard.operators.bash import BashOperator

with DAG("{name}", schedule=[asset], max_active_runs=1):
    @task(inlets=[asset])
    def take():
        return Inbox(asset).take()

    taken = take()
    BashOperator(
        task_id="copy",
        bash_command="echo '{{{{ ti.xcom_pull(task_ids=\\"take\\") | join(\\",\\") }}}}'",
        inlets=[asset],
    ) << taken
"""


def test_a_classic_operator_reads_a_take_in_its_template(consume: Consumed) -> None:
    consume.write(CLASSIC.format(name=consume.name))
    consume.put("a b+c", "ü")
    (run, *_) = consume.wait_for_runs("success", 1)
    text = consume.rest.xcom(consume.name, run["dag_run_id"], "copy")
    assert text == f"s3://{consume.bucket}/orders/a b+c,s3://{consume.bucket}/orders/ü"


def test_events_of_others_are_left_alone_and_an_empty_inbox_skips(consume: Consumed) -> None:
    consume.write(ONE_TASK.format(name=consume.name, seconds=0))
    asset_id = consume.rest.asset_id(consume.name)
    consume.rest.request("POST", "/assets/events", json={"asset_id": asset_id, "extra": {"payload": "someone else's"}})
    (run, *_) = consume.wait_for_runs("success", 1)
    (ti,) = consume.rest.task_instances(consume.name, run["dag_run_id"])
    assert ti["state"] == "skipped"
    consume.put("a")
    consume.wait_for_keys(["a"])


def test_overlap_and_missing_inlets_are_refused_without_burning_retries(consume: Consumed) -> None:
    body = ONE_TASK.format(name=consume.name, seconds=0).replace(", max_active_runs=1", "")
    consume.write(body.replace("inlets=[asset]", "inlets=[asset], retries=5"))
    consume.put("a")
    (run, *_) = consume.wait_for_runs("failed", 1)
    (ti,) = consume.rest.task_instances(consume.name, run["dag_run_id"])
    assert ti["try_number"] == 1
    log = consume.airflow.task_log(consume.name, run["dag_run_id"], "load")
    assert "may run 16 times at once" in log
    assert "Set max_active_runs=1" in log


CRON_TOO = """
from airflow.timetables.assets import AssetOrTimeSchedule
from airflow.timetables.trigger import CronTriggerTimetable

schedule = AssetOrTimeSchedule(timetable=CronTriggerTimetable("* * * * *", timezone="UTC"), assets=[asset])
with DAG("{name}", schedule=schedule, max_active_runs=1, catchup=False):
    @task(inlets=[asset])
    def load():
        with Inbox(asset) as inbox:
            for obj in inbox.objects():
                note(key=obj.key)
                if told("fail"):
                    raise RuntimeError("as told")
    load()
"""


@pytest.mark.soak
def test_a_cron_beside_the_asset_leaves_nothing_stuck(consume: Consumed) -> None:
    """What a run that failed for good had taken comes again although no further object ever does."""
    consume.write(CRON_TOO.format(name=consume.name))
    consume.tell("fail")
    consume.put("a", "b")
    consume.wait_for_runs("failed", 1)
    consume.tell("fail", off=True)
    seen = len(consume.keys())
    consume.airflow.wait_for(lambda: set(consume.keys()[seen:]) == {"a", "b"}, 180, "the cron's run to take over")
    consume.wait_for_runs("success", 2, timeout=180)
    assert sorted(consume.keys()[seen:]) == ["a", "b"], "the runs after it had nothing to do"
