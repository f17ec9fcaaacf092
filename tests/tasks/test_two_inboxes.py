"""Several inboxes of one asset in one task: what one of them took, another does not undo."""

from __future__ import annotations

import pytest
from airflow.sdk import Asset

from airflow_state_watchers import Inbox
from airflow_state_watchers.tasks.doubles import InMemoryAirflow
from airflow_state_watchers.tasks.refusal import InboxRefusal

ASSET = Asset("test")


def deliver(airflow: InMemoryAirflow, number: int, *keys: str) -> None:
    stamp = "2026-01-01T00:00:00+00:00"
    items = [{"key": key, "size": 1, "etag": "e", "last_modified": stamp} for key in keys]
    payload = {
        "v": 1, "kind": "s3_objects", "watcher": "w", "generation": 1, "trigger_run_id": "t", "sequence_index": number,
        "batch_id": f"b{number}", "previous": f"b{number - 1}" if number > 1 else None, "low": stamp, "high": stamp,
        "count": len(items), "bytes": 1, "bucket": "lake", "items": items,
    }  # fmt: skip
    airflow.deliver(payload)


def keys_of_next_run(airflow: InMemoryAirflow) -> list[str]:
    airflow.finish("r1")
    deliver(airflow, 3, "k3")
    with airflow.task("r2"), Inbox(ASSET) as inbox:
        return [obj.key for obj in inbox.objects()]


@pytest.mark.parametrize("mode", ["nested", "abandoned", "committed"])
def test_what_a_second_inbox_took_is_not_lost_when_the_first_is_left(mode: str) -> None:
    airflow = InMemoryAirflow()
    deliver(airflow, 1, "k1")
    with airflow.task("r1"):
        if mode == "abandoned":
            first = Inbox(ASSET).objects()
            next(first)
            deliver(airflow, 2, "k2")
            assert [obj.key for obj in Inbox(ASSET).take()] == ["k1", "k2"]
            first.close()  # type: ignore[attr-defined]
        else:
            with Inbox(ASSET) as one:
                list(one.objects())
                deliver(airflow, 2, "k2")
                with Inbox(ASSET) as two:
                    assert len(two) == 2
                if mode == "committed":
                    one.commit()
    airflow.set_state("r1", "failed")
    assert keys_of_next_run(airflow) == (["k2", "k3"] if mode == "committed" else ["k1", "k2", "k3"])


def test_a_second_take_keeps_who_finishes_the_first() -> None:
    airflow = InMemoryAirflow()
    deliver(airflow, 1, "k1", "k2")
    with airflow.task("r1"), Inbox(ASSET) as inbox:
        inbox.take(done_by="copy")
        assert len(inbox.take()) == 2
        with pytest.raises(InboxRefusal, match="'copy'"):
            inbox.take(done_by="another")
    airflow.set_state("r1", "failed", task_id="copy", map_index=0)
    airflow.set_state("r1", "success", task_id="copy", map_index=1)
    airflow.finish("r1")
    deliver(airflow, 2, "k3")
    with airflow.task("r2"), Inbox(ASSET) as inbox:
        assert [obj.key for obj in inbox.objects()] == ["k1", "k3"]
