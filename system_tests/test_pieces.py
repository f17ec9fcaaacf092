"""The demo's Airflow: its pieces start and become healthy, can be stopped, killed and frozen, and leave nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory

import psutil
import pytest

from airflow_state_watchers.demo.airflow import Airflow
from airflow_state_watchers.demo.pieces import DEFAULT
from airflow_state_watchers.demo.processes import ProcessDied, living

SOURCE = """
from airflow.sdk import DAG, Asset, AssetWatcher, task
from file_watcher import FileWatcher

asset = Asset("{name}", watchers=[AssetWatcher(name="watcher", trigger=FileWatcher(path="{path}"))])

with DAG("{name}", schedule=[asset], max_active_runs=1):

    @task
    def read(triggering_asset_events=None):
        texts = [event.extra["payload"]["text"] for events in triggering_asset_events.values() for event in events]
        print("read:", texts)
        return texts

    read()
"""


class Watched:
    """A file whose every change starts a run of a DAG."""

    def __init__(self, airflow: Airflow, name: str) -> None:
        self.airflow = airflow
        self.name = name
        self.path = airflow.home / f"{name}.txt"
        copy(Path(__file__).with_name("file_watcher.py"), airflow.home / "plugins")
        airflow.write_dag(name, SOURCE.format(name=name, path=self.path))
        airflow.wait_for_dag(name)

    def write(self, text: str) -> None:
        draft = self.path.with_suffix(".draft")
        draft.write_text(text)
        draft.replace(self.path)

    def texts(self) -> list[str]:
        return [event["extra"]["payload"]["text"].strip() for event in self.airflow.rest.asset_events(self.name)]

    def read(self) -> list[str]:
        """What the runs that have succeeded have read."""
        runs = [run for run in self.airflow.rest.dag_runs(self.name) if run["state"] == "success"]
        found = [text for run in runs for text in self.airflow.rest.xcom(self.name, run["dag_run_id"], "read")]
        return [text.strip() for text in found]

    def starts_a_run(self, text: str) -> None:
        """Change the file, and again after a while: an event that comes right after another one belongs to no run until yet
        another comes, and a watcher that has just been started says first what it finds."""
        self.write(text)
        written = time.monotonic()

        def has_run() -> bool:
            nonlocal written
            if text in self.read():
                return True
            if time.monotonic() - written > 20:
                written = time.monotonic()
                self.write(f"{text} " if self.path.read_text() == text else text)
            return False

        self.airflow.wait_for(has_run, 120, f"a run of {self.name} for {text!r}")


@pytest.fixture
def watched(airflow: Airflow, request: pytest.FixtureRequest) -> Watched:
    return Watched(airflow, re.sub(r"\W", "_", request.node.name))


def addresses(pids: list[int]) -> set[str]:
    """The addresses these processes listen on."""
    connections = [found for pid in pids for found in psutil.Process(pid).net_connections("inet")]
    return {found.laddr.ip for found in connections if found.status == psutil.CONN_LISTEN}


def everything(airflow: Airflow) -> list[int]:
    return [pid for piece in airflow.pieces.expected for pid in airflow.pieces.pids(piece)]


def test_from_a_change_to_a_task(airflow: Airflow, watched: Watched) -> None:
    assert set(airflow.rest.health().values()) == {"healthy"}
    watched.starts_a_run("first")
    (event,) = airflow.rest.asset_events(watched.name)
    assert event["extra"] == {"from_trigger": True, "payload": {"text": "first"}}
    (run,) = airflow.rest.dag_runs(watched.name)
    (triggering,) = airflow.rest.triggering_events(watched.name, run["dag_run_id"])
    assert triggering["id"] == event["id"]
    (task,) = airflow.rest.task_instances(watched.name, run["dag_run_id"])
    assert (task["task_id"], task["state"]) == ("read", "success")
    assert "read: ['first']" in airflow.task_log(watched.name, run["dag_run_id"], "read")
    assert f"Uvicorn running on {airflow.url}" in airflow.log("api-server")


def test_the_pieces_listen_on_loopback_only(airflow: Airflow) -> None:
    assert addresses(everything(airflow)) == {"127.0.0.1"}


def test_runs_and_tasks_are_cleared(airflow: Airflow, watched: Watched) -> None:
    watched.starts_a_run("once")
    (run,) = airflow.rest.dag_runs(watched.name)
    run_id = run["dag_run_id"]

    def tries() -> int:
        (task,) = airflow.rest.task_instances(watched.name, run_id)
        return int(task["try_number"]) if task["state"] == "success" else 0

    airflow.rest.clear_run(watched.name, run_id)
    airflow.wait_for(lambda: tries() == 2, 60, "the second try")
    airflow.rest.clear_tasks(watched.name, run_id, ["read"])
    airflow.wait_for(lambda: tries() == 3, 60, "the third try")
    assert "read: ['once']" in airflow.task_log(watched.name, run_id, "read", try_number=3)


def test_a_paused_dag_does_not_run_and_one_can_be_triggered_by_hand(airflow: Airflow, watched: Watched) -> None:
    airflow.pause(watched.name)
    dag = airflow.rest.dag(watched.name)
    assert dag
    assert dag["is_paused"]
    airflow.unpause(watched.name)
    run_id = airflow.rest.trigger(watched.name, {"by": "hand"})
    runs = airflow.wait_for(lambda: airflow.rest.dag_runs(watched.name), 30, "the run")
    assert [(run["dag_run_id"], run["conf"]) for run in runs] == [(run_id, {"by": "hand"})]


def test_asset_state_is_read_and_written(airflow: Airflow, watched: Watched) -> None:
    key = "state_watchers:s3://lake/a+b//%2B é/"
    rest = airflow.rest
    assert rest.state(watched.name, key) is None
    rest.put_state(watched.name, key, {"watermark": [1, "é"]})
    assert rest.state(watched.name, key) == {"watermark": [1, "é"]}
    assert [(entry["key"], entry["value"]) for entry in rest.states(watched.name)] == [(key, {"watermark": [1, "é"]})]
    rest.delete_state(watched.name, key)
    assert rest.states(watched.name) == []


def test_an_edited_dag_counts_and_a_broken_one_is_told(airflow: Airflow, watched: Watched) -> None:
    source = SOURCE.format(name=watched.name, path=watched.path)
    edited = datetime.now(timezone.utc)
    airflow.write_dag(watched.name, source.replace("max_active_runs=1", "max_active_runs=2"))
    airflow.wait_for_dag(watched.name, parsed_after=edited)
    dag = airflow.rest.dag(watched.name)
    assert dag
    assert dag["max_active_runs"] == 2
    airflow.write_dag(watched.name, f"import nonsense_that_is_nowhere\n{source}")
    (error,) = airflow.wait_for(airflow.rest.import_errors, 30, "an import error")
    assert "nonsense_that_is_nowhere" in error["stack_trace"]
    with pytest.raises(TimeoutError, match="nonsense_that_is_nowhere"):
        airflow.wait_for_dag(watched.name, parsed_after=datetime.now(timezone.utc), timeout=1)
    airflow.write_dag(watched.name, source)
    airflow.wait_for(lambda: not airflow.rest.import_errors(), 30, "no import error")


def test_every_piece_can_be_stopped_and_started(airflow: Airflow, watched: Watched) -> None:
    pids = everything(airflow)
    codes = {piece: airflow.stop(piece) for piece in DEFAULT}
    assert codes == dict.fromkeys(DEFAULT, 0)
    assert living(pids) == []
    airflow.restore()
    watched.starts_a_run("after a stop")


def test_every_piece_can_be_killed_and_started(airflow: Airflow, watched: Watched) -> None:
    for piece in DEFAULT:
        pids = airflow.pieces.pids(piece)
        assert sorted(airflow.kill(piece)) == sorted(pids)
        assert living(pids) == []
    airflow.restore()
    watched.starts_a_run("after a kill")


def test_a_killed_triggerer_leaves_a_runner_that_notices(airflow: Airflow) -> None:
    main, runner = airflow.pieces.pids("triggerer")
    assert airflow.kill("triggerer", "main") == [main]
    airflow.wait_for(lambda: not living([runner]), 30, "the runner's end")
    airflow.start("triggerer")


def test_a_triggerer_whose_runner_was_killed_ends(airflow: Airflow) -> None:
    _, runner = airflow.pieces.pids("triggerer")
    assert airflow.kill("triggerer", "children") == [runner]
    airflow.pieces.wait_for_exit("triggerer", timeout=60)


def test_a_second_triggerer_takes_over_from_a_frozen_one(airflow: Airflow, watched: Watched) -> None:
    watched.starts_a_run("before")
    airflow.pieces.freeze("triggerer")
    airflow.start("triggerer-2")
    watched.starts_a_run("while frozen")
    airflow.pieces.thaw("triggerer")
    watched.starts_a_run("after")


def test_an_unexpected_death_is_told_at_once(airflow: Airflow) -> None:
    os.kill(airflow.pieces.pids("dag-processor")[0], signal.SIGKILL)
    with pytest.raises(ProcessDied, match=r"dag-processor ended with exit code -9; .*dag-processor.log ends:\n"):
        airflow.wait_for(lambda: False, 30, "nothing")
    airflow.kill("dag-processor")


def test_a_wait_in_vain_shows_the_logs(airflow: Airflow) -> None:
    with pytest.raises(TimeoutError, match=r"(?s)waited 0 s for a miracle; last seen: \[\].*--- triggerer:"):
        airflow.wait_for(list, 0.1, "a miracle")


def test_on_postgres_beside_another(airflow: Airflow, start_airflow: Callable[..., Airflow]) -> None:
    other = start_airflow(database="postgres", config={"core": {"max_map_length": 7}})
    here, there = Watched(airflow, "side_by_side"), Watched(other, "side_by_side")
    here.starts_a_run("here")
    there.starts_a_run("there")
    other.kill("triggerer")
    other.start("triggerer")
    there.starts_a_run("there again")
    assert set(here.read()) == {"here"}
    assert set(there.texts()) == {"there", "there again"}
    assert addresses(everything(other)) == {"127.0.0.1"}
    pids = everything(other)
    other.close()
    assert living(pids) == []
    assert not other.home.exists()
    assert set(airflow.rest.health().values()) == {"healthy"}


INTERRUPTED = """
import sys, time
from airflow_state_watchers.demo.airflow import Airflow

with Airflow(database="postgres", pieces=("scheduler", "triggerer")) as airflow:
    print("never ready without an API server")
"""


def command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # a database's worker that has come and gone
        return ""


@pytest.fixture
def temporary() -> Iterator[str]:
    """A directory that PostgreSQL's user can reach as well."""
    with TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield directory


def test_nothing_is_left_when_the_run_itself_is_killed(airflow: Airflow, temporary: str) -> None:
    # As soon as its pieces have children of their own; they need not be healthy.
    environment = {**os.environ, "TMPDIR": temporary}
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED], env=environment) as run:
        process = psutil.Process(run.pid)

        def descendants() -> list[int]:
            found = process.children(recursive=True)
            commands = [command(child) for child in found]
            triggerers = [text for text in commands if text.endswith("triggerer --skip-serve-logs")]
            # Its keeper, itself and its runner; the scheduler's workers give themselves a name.
            complete = len(triggerers) == 3 and any("LocalExecutor" in text for text in commands)
            return [child.pid for child in found] if complete else []

        try:
            pids = airflow.wait_for(descendants, 300, "the pieces and their children")
        finally:
            run.kill()
    assert len(pids) > 10  # PostgreSQL and its backends are among them
    airflow.wait_for(lambda: not living(pids), 15, "the end of all of them")
