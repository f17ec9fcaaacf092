"""Lists for XCom, mapped tasks and templates (law 2)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from airflow_state_watchers import Inbox, InboxError
from airflow_state_watchers.tasks.doubles import InMemoryAirflow
from tests.tasks.sender import ORDERS, Sender, keys


@pytest.fixture
def airflow() -> InMemoryAirflow:
    return InMemoryAirflow(asset="orders")


@pytest.fixture
def sender(airflow: InMemoryAirflow) -> Sender:
    return Sender(airflow)


def take(
    airflow: InMemoryAirflow, run_id: str, *, group: int | None = None, with_block: bool = False
) -> list[str] | list[list[str]]:
    with airflow.task(run_id):
        inbox = Inbox(ORDERS, skip_if_empty=False)
        if with_block:
            with inbox:
                taken = inbox.take(group=group, done_by="copy")
        else:
            taken = inbox.take(group=group, done_by="copy")
    return keys(taken) if group is None else [keys(part) for part in taken]


def copies(airflow: InMemoryAirflow, run_id: str, states: Mapping[int, str | None]) -> None:
    for map_index, state in states.items():
        airflow.set_state(run_id, state, task_id="copy", map_index=map_index)


def test_the_list_is_typed_and_grouped(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a", "b", "c")
    with airflow.task("r1"):
        taken = Inbox(ORDERS).take(group=2)
    assert [[obj.uri for obj in group] for group in taken] == [["s3://lake/a", "s3://lake/b"], ["s3://lake/c"]]


def test_without_done_by_the_taking_task_finishes_all(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a", "b")
    with airflow.task("r1"):
        assert keys(Inbox(ORDERS).take()) == ["a", "b"]
    assert take(airflow, "r2") == []


@pytest.mark.parametrize("with_block", [True, False])
def test_one_bad_file_does_not_repeat_the_others(airflow: InMemoryAirflow, sender: Sender, with_block: bool) -> None:
    sender.send("a", "b", "c")
    assert take(airflow, "r1", with_block=with_block) == ["a", "b", "c"]
    copies(airflow, "r1", {0: "success", 1: "failed", 2: "success"})
    sender.send("d")
    assert take(airflow, "r2") == ["b", "d"]
    copies(airflow, "r2", {0: "success", 1: "success"})
    assert take(airflow, "r3") == []


def test_the_items_of_one_bad_group_come_again(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a", "b", "c")
    sender.send("d", "e")
    assert take(airflow, "r1", group=2) == [["a", "b"], ["c", "d"], ["e"]]
    copies(airflow, "r1", {0: "success", 1: "failed", 2: "upstream_failed"})
    assert take(airflow, "r2", group=2) == [["c", "d"], ["e"]]
    copies(airflow, "r2", {0: "failed", 1: "success"})
    assert take(airflow, "r3") == ["c", "d"]


def test_copies_at_work_keep_their_items(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a", "b", "c")
    take(airflow, "r1")
    copies(airflow, "r1", {0: "running", 1: "failed", 2: None})
    assert take(airflow, "r2") == ["b"]
    copies(airflow, "r1", {0: "success", 2: "failed"})
    copies(airflow, "r2", {0: "success"})
    assert take(airflow, "r3") == ["c"]


def test_a_task_that_is_not_mapped_finishes_the_whole_list(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a", "b")
    take(airflow, "r1")
    copies(airflow, "r1", {-1: "failed"})
    assert take(airflow, "r2") == ["a", "b"]
    copies(airflow, "r2", {-1: "success"})
    assert take(airflow, "r3") == []


def test_if_the_taking_task_fails_all_comes_again(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a", "b")
    take(airflow, "r1")
    airflow.set_state("r1", "failed")
    copies(airflow, "r1", {-1: "upstream_failed"})
    assert take(airflow, "r2") == ["a", "b"]


def test_a_retry_of_the_taking_task_makes_a_new_list(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a", "b")
    take(airflow, "r1")
    airflow.set_state("r1", "failed")
    sender.send("c")
    assert take(airflow, "r1") == ["a", "b", "c"]
    copies(airflow, "r1", {0: "success", 1: "failed", 2: "success"})
    assert take(airflow, "r2") == ["b"]


def test_a_cleared_run_whose_copies_all_succeeded_gets_all_again(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a", "b")
    take(airflow, "r1")
    copies(airflow, "r1", {0: "success", 1: "success"})
    take(airflow, "r2")
    airflow.clear("r1")
    assert take(airflow, "r1") == ["a", "b"]


def test_a_cleared_run_one_of_whose_copies_failed_gets_what_nobody_finished(
    airflow: InMemoryAirflow, sender: Sender
) -> None:
    sender.send("a", "b")
    take(airflow, "r1")
    copies(airflow, "r1", {0: "success", 1: "failed"})
    assert take(airflow, "r2") == ["b"]
    copies(airflow, "r2", {0: "failed"})
    airflow.clear("r1")
    assert take(airflow, "r1") == ["b"]


def test_after_a_commit_only_the_rest_is_mapped(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a", "b", "c")
    with airflow.task("r1"), Inbox(ORDERS) as inbox:
        next(iter(inbox.objects()))
        inbox.commit()
        assert keys(inbox.take(done_by="copy")) == ["b", "c"]
    copies(airflow, "r1", {0: "failed", 1: "success"})
    assert take(airflow, "r2") == ["b"]


def test_a_flat_list_above_airflows_limit_names_group(airflow: InMemoryAirflow, sender: Sender) -> None:
    airflow.max_map_length = 3
    sender.send(*"abcdefgh")
    with (
        pytest.raises(InboxError, match=r"8 items: Airflow maps .* at most 3 values .* Use take\(group=3\)"),
        airflow.task("r1"),
    ):
        Inbox(ORDERS).take()
    with pytest.raises(InboxError, match=r"8 items in groups of 2 make 4 lists"), airflow.task("r2"):
        Inbox(ORDERS).take(group=2)
    assert take(airflow, "r3", group=3) == [["a", "b", "c"], ["d", "e", "f"], ["g", "h"]]


def test_a_list_that_nothing_is_mapped_over_may_be_long(airflow: InMemoryAirflow, sender: Sender) -> None:
    airflow.max_map_length, airflow.mapped_over = 3, False
    sender.send(*"abcdefgh")
    assert take(airflow, "r1") == list("abcdefgh")


def test_done_by_must_name_a_task_of_the_dag(airflow: InMemoryAirflow, sender: Sender) -> None:
    airflow.task_ids = frozenset({"task", "copy_files"})
    sender.send("a")
    with (
        pytest.raises(InboxError, match=r"DAG 'dag' has no such task\. Did you mean 'copy_files'\?"),
        airflow.task("r1"),
    ):
        Inbox(ORDERS).take(done_by="copy")


@pytest.mark.parametrize("group", [0, -1])
def test_a_group_has_at_least_one(airflow: InMemoryAirflow, sender: Sender, group: int) -> None:
    sender.send("a")
    with pytest.raises(InboxError, match="makes no groups"), airflow.task("r1"):
        Inbox(ORDERS).take(group=group)
