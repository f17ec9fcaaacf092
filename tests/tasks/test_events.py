"""A watcher's events, typed, and their way through XCom (law 8)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import serde

from airflow_state_watchers import InboxError, S3Object, SqlWindow, WatcherEvent
from airflow_state_watchers.tasks.doubles import InMemoryAirflow
from airflow_state_watchers.tasks.events import event_of, payload_of
from tests.tasks.sender import START, Sender

STAMP = datetime(2026, 11, 29, 10, 0, 0, 123456, tzinfo=timezone.utc)
WINDOW = SqlWindow("shop", ("orders",), None, None, (), "v", ("id",), "1", "2", 3, False)
OBJECT = S3Object("lake", "a b/é+%2B😀.csv", 12, "9e10", STAMP, "v1")


def through_xcom(value: Any) -> Any:
    return serde.deserialize(json.loads(json.dumps(serde.serialize(value))))


@pytest.mark.parametrize("value", [OBJECT, [OBJECT, OBJECT], [[OBJECT], []], {"one": OBJECT}])
def test_objects_pass_through_xcom_as_themselves(value: Any) -> None:
    assert through_xcom(value) == value


def test_another_time_zone_and_no_version_pass_too() -> None:
    obj = S3Object("lake", "k", 0, "e", START.astimezone(timezone(timedelta(hours=-5))))
    assert through_xcom(obj) == obj
    assert through_xcom(obj).last_modified.utcoffset() == timedelta(hours=-5)


def test_an_object_of_a_newer_release_is_refused() -> None:
    stored = serde.serialize(OBJECT)
    assert isinstance(stored, dict)
    with pytest.raises(TypeError, match="newer release"):
        serde.deserialize({**stored, "__version__": 2})


READ_XCOM = """
import json, sys
from airflow.sdk.plugins_manager import integrate_macros_plugins
integrate_macros_plugins()  # what every task's process does first
from airflow.sdk import serde
value = serde.deserialize(json.loads(sys.stdin.read()))
print(*(type(one).__name__ for one in value))
"""


def read_in_another_process(tmp_path: Path, *, plugin: bool) -> subprocess.CompletedProcess[str]:
    """Read an object in a process that imports nothing of this package by itself, on Airflow's default configuration."""
    info = tmp_path / "state_watchers_plugin-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: state-watchers-plugin\nVersion: 1\n")
    if plugin:
        line = "state_watchers = airflow_state_watchers.tasks.plugin:StateWatchersPlugin"
        (info / "entry_points.txt").write_text(f"[airflow.plugins]\n{line}\n")
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{tmp_path}", "AIRFLOW_HOME": str(tmp_path)}
    return subprocess.run(
        [sys.executable, "-c", READ_XCOM],
        input=json.dumps(serde.serialize([S3Object("lake", "k", 0, "e", START), WINDOW])),
        capture_output=True,
        text=True,
        env=env,
        check=False,
        timeout=110,
    )


def test_the_plugin_lets_objects_and_windows_be_read_where_nothing_else_is_imported(tmp_path: Path) -> None:
    done = read_in_another_process(tmp_path, plugin=True)
    assert done.stdout.split() == ["S3Object", "SqlWindow"], done.stderr


def test_an_object_is_readable_text() -> None:
    assert OBJECT.uri == str(OBJECT) == "s3://lake/a b/é+%2B😀.csv"


def test_an_object_is_frozen_and_hashable() -> None:
    with pytest.raises(AttributeError):
        OBJECT.key = "other"  # type: ignore[misc]
    assert len({OBJECT, OBJECT}) == 1


def asset_event(payload: Any) -> Any:
    return SimpleNamespace(asset=SimpleNamespace(name="orders"), extra={"from_trigger": True, "payload": payload})


def test_an_asset_event_is_read_typed() -> None:
    payload = Sender(InMemoryAirflow()).payload(["a", "b"])
    payload["items"][1] |= {"version_id": "v7", "last_modified": STAMP.isoformat()}
    event = WatcherEvent.from_asset_event(asset_event(payload))
    assert event is not None
    assert (event.asset, event.batch_id, event.count, event.bytes) == ("orders", payload["batch_id"], 2, 2)
    assert (event.low, event.high) == (START, START)
    assert event.items == (
        S3Object("lake", "a", 1, "e", START),
        S3Object("lake", "b", 1, "e", STAMP, "v7"),
    )


@pytest.mark.parametrize(
    "payload",
    [
        None,
        "text",
        [],
        {},
        {"kind": "other"},
        {"kind": "s3_objects"},
        {"kind": "s3_objects", "watcher": 1, "batch_id": "b"},
        {"kind": "s3_objects", "watcher": "w", "batch_id": "b", "items": None},
    ],
)
def test_what_is_not_ours_is_none(payload: Any) -> None:
    assert WatcherEvent.from_asset_event(asset_event(payload)) is None
    assert payload_of(None) is None


def test_replaced_batches_may_be_one_or_several() -> None:
    payload = Sender(InMemoryAirflow()).payload(["a"])
    assert event_of(1, START, payload).replaces == ()
    assert event_of(1, START, {**payload, "replaces": "b"}).replaces == ("b",)
    assert event_of(1, START, {**payload, "replaces": ["b", "c"]}).replaces == ("b", "c")


def test_an_event_of_a_newer_release_is_refused() -> None:
    with pytest.raises(InboxError, match="version 2"):
        event_of(1, START, {**Sender(InMemoryAirflow()).payload(["a"]), "v": 2})
