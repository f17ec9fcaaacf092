"""The laws of the inbox, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_state_watchers import Inbox, InboxError
from airflow_state_watchers.tasks.doubles import InMemoryAirflow
from tests.tasks.sender import ORDERS, Sender, item, keys


@pytest.fixture
def airflow() -> InMemoryAirflow:
    return InMemoryAirflow(asset="orders", retries=1)


@pytest.fixture
def sender(airflow: InMemoryAirflow) -> Sender:
    return Sender(airflow)


def read(
    airflow: InMemoryAirflow, run_id: str, try_number: int = 1, *, triggered: bool = True, **arguments: Any
) -> list[str]:
    """Run a task that handles everything."""
    with (
        airflow.task(run_id, try_number, triggered=triggered),
        Inbox(ORDERS, skip_if_empty=False, **arguments) as inbox,
    ):
        return keys(inbox.objects())


def fail(
    airflow: InMemoryAirflow, run_id: str, try_number: int = 1, *, after: int = 99, commit: bool = False
) -> list[str]:
    """Run a task that fails after some items."""
    seen: list[str] = []

    def task() -> None:
        with Inbox(ORDERS) as inbox:
            for obj in inbox.objects():
                seen.append(obj.key)
                if len(seen) == after:
                    break
            if commit:
                inbox.commit()
            raise RuntimeError

    with pytest.raises(RuntimeError), airflow.task(run_id, try_number):
        task()
    return seen


# 1: an item is done when the task that took it has succeeded


def test_items_come_in_order_and_once(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a", "b")
    sender.send("c")
    assert read(airflow, "r1") == ["a", "b", "c"]
    sender.send("d")
    assert read(airflow, "r2") == ["d"]
    assert read(airflow, "r3") == []


def test_a_retry_gets_the_same_again_then_what_is_new(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a", "b")
    assert fail(airflow, "r1", after=1) == ["a"]
    sender.send("c")
    assert read(airflow, "r1", 2) == ["a", "b", "c"]
    assert read(airflow, "r2") == []


def test_what_failed_for_good_is_taken_over(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a", "b")
    fail(airflow, "r1")
    sender.send("c")
    assert read(airflow, "r2") == ["a", "b", "c"]
    assert read(airflow, "r3") == []


@pytest.mark.parametrize("state", ["failed", "upstream_failed", "skipped", "removed"])
def test_no_success_is_taken_over(airflow: InMemoryAirflow, sender: Sender, state: str) -> None:
    sender.send("a")
    read(airflow, "r1")
    airflow.set_state("r1", state)
    assert read(airflow, "r2") == ["a"]


def test_a_run_that_was_deleted_is_taken_over(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a")
    read(airflow, "r1")
    airflow.delete("r1")
    assert read(airflow, "r2") == ["a"]


@pytest.mark.parametrize(
    "state",
    [
        None,
        "scheduled",
        "queued",
        "running",
        "restarting",
        "up_for_retry",
        "up_for_reschedule",
        "deferred",
        "awaiting_input",
    ],
)
def test_whoever_may_still_finish_is_left_alone(airflow: InMemoryAirflow, sender: Sender, state: str | None) -> None:
    sender.send("a")
    read(airflow, "r1")
    airflow.set_state("r1", state)
    sender.send("b")
    assert read(airflow, "r2") == ["b"]
    airflow.set_state("r1", "failed")
    assert read(airflow, "r3") == ["a"]


def test_nobody_waits_in_a_finished_run(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a")
    read(airflow, "r1")
    airflow.set_state("r1", None)
    airflow.finish("r1")
    assert read(airflow, "r2") == ["a"]


def test_a_task_that_runs_on_in_a_finished_run_is_left_alone(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a")
    read(airflow, "r1")
    airflow.set_state("r1", "running")
    airflow.finish("r1")
    assert read(airflow, "r2") == []


def test_commit_finishes_what_was_handed_out(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a", "b", "c")
    fail(airflow, "r1", after=2, commit=True)
    assert read(airflow, "r1", 2) == ["c"]
    sender.send("d", "e")
    fail(airflow, "r2", after=1, commit=True)
    assert read(airflow, "r3") == ["e"]


def test_after_a_commit_the_rest_follows(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a", "b", "c")
    with airflow.task(), Inbox(ORDERS) as inbox:
        first = next(iter(inbox.objects()))
        inbox.commit()
        assert len(inbox) == 2
        assert [first.key, *keys(inbox.objects())] == ["a", "b", "c"]
    assert read(airflow, "r2") == []


def test_what_was_not_handed_out_is_not_done(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a", "b")
    sender.send("c")
    with airflow.task("r1"), Inbox(ORDERS) as inbox:
        for _ in inbox.objects():
            break
    assert read(airflow, "r2") == ["b", "c"]


def test_opening_alone_finishes_nothing(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a")
    with airflow.task("r1"), Inbox(ORDERS) as inbox:
        assert len(inbox) == 1
    assert read(airflow, "r2") == ["a"]


def test_a_worker_killed_in_the_middle_finishes_nothing(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a", "b")

    def task() -> None:
        inbox = Inbox(ORDERS)
        inbox.__enter__()
        assert keys(inbox.objects()) == ["a", "b"]
        raise KeyboardInterrupt  # __exit__ is never reached

    with pytest.raises(KeyboardInterrupt), airflow.task("r1"):
        task()
    assert read(airflow, "r2") == ["a", "b"]


def test_without_a_with_block_the_iteration_counts(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a", "b")
    with airflow.task("r1"):
        assert keys(Inbox(ORDERS).objects()) == ["a", "b"]
    sender.send("c", "d")
    with airflow.task("r2"):
        for obj in Inbox(ORDERS).objects():
            assert obj.key == "c"
            break
    assert read(airflow, "r3") == ["d"]


def test_one_inbox_object_serves_one_task_after_another(airflow: InMemoryAirflow, sender: Sender) -> None:
    inbox = Inbox(ORDERS, skip_if_empty=False)
    sender.send("a")
    with airflow.task("r1"):
        assert keys(inbox.objects()) == ["a"]
    sender.send("b")
    with airflow.task("r2"):
        assert len(inbox) == 1
        assert keys(inbox.objects()) == ["b"]
    with airflow.task("r3"), inbox:
        assert keys(inbox.objects()) == []


def test_an_empty_inbox_skips_the_task(airflow: InMemoryAirflow, sender: Sender) -> None:
    with pytest.raises(AirflowSkipException, match="nothing new in asset 'orders' for dag/task"), airflow.task("r1"):
        Inbox(ORDERS).__enter__()
    with airflow.task("r2"), Inbox(ORDERS, skip_if_empty=False) as inbox:
        assert len(inbox) == 0
        assert not [*inbox.objects(), *inbox.events(), *inbox.take()]


def test_a_retry_with_everything_committed_is_not_skipped(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a")
    fail(airflow, "r1", commit=True)
    with airflow.task("r1", 2), Inbox(ORDERS) as inbox:
        assert list(inbox.objects()) == []


def test_a_skipped_task_keeps_nothing(airflow: InMemoryAirflow, sender: Sender) -> None:
    """Skipped is not succeeded: what it took comes again, unless it was committed."""
    sender.send("a", "b")

    def task() -> None:
        with Inbox(ORDERS) as inbox:
            next(iter(inbox.objects()))
            inbox.commit()
            raise AirflowSkipException

    with pytest.raises(AirflowSkipException), airflow.task("r1"):
        task()
    assert read(airflow, "r2") == ["b"]


# 3: clearing


def test_a_cleared_success_gets_its_items_again(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a", "b")
    read(airflow, "r1")
    sender.send("c")
    read(airflow, "r2")
    airflow.clear("r1")
    assert read(airflow, "r1", 2) == ["a", "b"]
    assert read(airflow, "r3") == []
    airflow.clear("r1")
    assert read(airflow, "r1", 3) == ["a", "b"], "as often as one likes"


def test_a_success_cleared_before_anybody_asked_gets_its_items_again(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a", "b", "c")
    with airflow.task("r1"), Inbox(ORDERS) as inbox:
        for obj in inbox.objects():
            if obj.key == "b":
                inbox.commit()
    airflow.clear("r1")
    assert read(airflow, "r1", 2) == ["a", "b", "c"]


def test_a_cleared_failure_gets_what_nobody_has_finished_since(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a", "b")
    fail(airflow, "r1")
    assert read(airflow, "r2") == ["a", "b"]
    airflow.clear("r1")
    assert read(airflow, "r1", 3) == []
    sender.send("c")
    fail(airflow, "r3")
    fail(airflow, "r4")
    airflow.clear("r3")
    assert read(airflow, "r3", 3) == ["c"], "r4 took it over and failed too"


def test_a_failure_cleared_before_anybody_asked_gets_what_it_had_not_finished(
    airflow: InMemoryAirflow, sender: Sender
) -> None:
    sender.send("a", "b")
    fail(airflow, "r1", after=1, commit=True)
    airflow.clear("r1")
    assert read(airflow, "r1", 3) == ["b"]


def test_a_clear_waiting_for_its_turn_keeps_its_items(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a")
    read(airflow, "r1")
    airflow.clear("r1")
    sender.send("b")
    assert read(airflow, "r2") == ["b"]
    assert read(airflow, "r1", 2) == ["a"]


def test_a_redo_that_fails_is_taken_over(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a")
    read(airflow, "r1")
    read(airflow, "r2")
    airflow.clear("r1")
    fail(airflow, "r1", 2)
    assert read(airflow, "r3") == ["a"]


def test_a_run_that_had_nothing_gets_nothing_when_cleared(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a")
    with airflow.task("r2", triggered=True), Inbox(ORDERS) as inbox:
        list(inbox.objects())
    assert read(airflow, "r3") == []
    airflow.clear("r3")
    assert read(airflow, "r3", 2) == []


def test_a_clear_beyond_memory_falls_on_the_runs_own_events(airflow: InMemoryAirflow, sender: Sender) -> None:
    for number in range(105):
        sender.send(f"k{number}")
        read(airflow, f"r{number}")
    airflow.clear("r2")
    assert read(airflow, "r2", 2) == ["k2"]
    airflow.clear("r50")
    assert read(airflow, "r50", 2) == ["k50"]


# 4: overlap


def test_a_dag_that_may_overlap_itself_is_refused(airflow: InMemoryAirflow, sender: Sender) -> None:
    airflow.max_active_runs = 16
    sender.send("a")
    with (
        pytest.raises(
            InboxError,
            match=r"DAG 'dag' may run 16 times at once; two runs would process the same items\. Set "
            r"max_active_runs=1, or Inbox\(orders, allow_overlap=True\) if repeats are harmless\.",
        ),
        airflow.task(),
    ):
        Inbox(ORDERS).__enter__()
    assert read(airflow, "r1", 2, allow_overlap=True) == ["a"]


def test_errors_burn_no_retries(airflow: InMemoryAirflow) -> None:
    airflow.max_active_runs = 0
    with pytest.raises(AirflowFailException), airflow.task():
        Inbox(ORDERS).__enter__()


def test_overlapping_runs_share_what_there_is(airflow: InMemoryAirflow, sender: Sender) -> None:
    airflow.max_active_runs = 2
    sender.send("a")
    with airflow.task("r1"), Inbox(ORDERS, allow_overlap=True) as first:
        assert keys(first.objects()) == ["a"]
        sender.send("b")
        with airflow.task("r2"), Inbox(ORDERS, allow_overlap=True) as second:
            assert keys(second.objects()) == ["b"]
            first.commit()
    assert read(airflow, "r3", allow_overlap=True) == []


def test_what_another_run_has_taken_over_is_not_claimed_back(airflow: InMemoryAirflow, sender: Sender) -> None:
    """A worker that was given up goes on: what it stores must not undo that another run has its items now."""
    sender.send("a", "b")
    with airflow.task("r1"), Inbox(ORDERS) as lost:
        list(lost.objects())
        airflow.set_state("r1", "failed")
        fail(airflow, "r2")
    assert read(airflow, "r3") == ["a", "b"]


# 5: a new consumer


def test_a_new_consumer_begins_with_what_triggered_its_run_and_gets_all_after_it(
    airflow: InMemoryAirflow, sender: Sender
) -> None:
    sender.send("old")
    with airflow.task("before the inbox was used"):
        pass
    first = sender.payload(["a"])
    sender.post(first)
    sender.previous = first["batch_id"]
    airflow.create_run("r1")
    sender.send("b")
    assert read(airflow, "r1") == ["a", "b"], "b came while the run was waiting"
    sender.send("c")
    assert read(airflow, "r2") == ["c"]


def test_a_new_consumer_can_begin_with_everything(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("old")
    with airflow.task("before the inbox was used"):
        pass
    sender.send("a")
    assert read(airflow, "r1", start="earliest") == ["old", "a"]
    assert read(airflow, "r2") == []


def test_a_run_that_no_event_triggered_begins_now_and_loses_nothing(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("old")
    with airflow.task("before the inbox was used"):
        pass
    sender.send("a")
    airflow.create_run("r2")
    assert read(airflow, "by hand", triggered=False) == []
    sender.send("b")
    assert read(airflow, "r2") == ["a", "b"], "a triggered this run, and nobody was given it"
    assert read(airflow, "r3") == []


def test_an_event_from_before_the_beginning_is_given_once(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a")
    airflow.create_run("r2")
    read(airflow, "by hand", triggered=False, consumer="shared")
    assert read(airflow, "r2", consumer="shared") == ["a"]
    with airflow.task("r2", task_id="other"), Inbox(ORDERS, consumer="shared", skip_if_empty=False) as inbox:
        assert keys(inbox.objects()) == []


def test_what_was_skipped_at_the_beginning_stays_skipped_when_it_is_delivered_again(
    airflow: InMemoryAirflow, sender: Sender
) -> None:
    old = sender.send("old")
    read(airflow, "by hand", triggered=False)
    sender.clock += timedelta(days=1)
    sender.send("a")
    assert read(airflow, "r2", triggered=False) == ["a"]
    sender.post(old)  # the first event of it lies beyond what is read again
    assert read(airflow, "r3", triggered=False) == []


def test_a_run_by_hand_on_an_empty_asset_begins_there(airflow: InMemoryAirflow, sender: Sender) -> None:
    assert read(airflow, "by hand", triggered=False) == []
    sender.send("a")
    assert read(airflow, "by hand 2", triggered=False) == ["a"]


def test_a_renamed_task_is_a_new_consumer_but_for_its_consumer_name(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a")
    read(airflow, "r1")
    read(airflow, "r1", consumer="loader")
    with airflow.task("r2", task_id="renamed"), Inbox(ORDERS, start="earliest") as inbox:
        assert keys(inbox.objects()) == ["a"]
    sender.send("b")
    airflow.dag_id = "renamed_dag"
    assert read(airflow, "r3", consumer="loader") == ["b"]


def test_two_consumers_each_get_everything(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a")
    assert read(airflow, "r1", consumer="one", start="earliest") == ["a"]
    assert read(airflow, "r1", 2, consumer="two", start="earliest") == ["a"]


# 7: the loss of the asset's state


def lose(airflow: InMemoryAirflow) -> None:
    airflow.store.data.clear()  # type: ignore[attr-defined]


def test_the_bookmark_survives_the_loss_of_the_assets_state(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a")
    read(airflow, "r1")
    sender.send("b")
    fail(airflow, "r2")
    lose(airflow)
    sender.send("c")
    assert read(airflow, "r3") == ["b", "c"]
    lose(airflow)
    assert read(airflow, "r4") == []


def test_a_loss_while_a_task_runs_is_mended_by_it(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a", "b")
    with airflow.task("r1"), Inbox(ORDERS) as inbox:
        for obj in inbox.objects():
            if obj.key == "a":
                lose(airflow)
                inbox.commit()
    assert read(airflow, "r2") == []


def test_a_retry_after_a_loss_gets_its_own_again(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a")
    read(airflow, "r1")
    sender.send("b", "c")
    fail(airflow, "r2", after=1, commit=True)
    lose(airflow)
    assert read(airflow, "r2", 2) == ["c"]


def test_the_second_copy_moves_when_its_run_is_deleted(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a")
    read(airflow, "r1")
    airflow.delete("r1")
    sender.send("b")
    read(airflow, "r2")
    lose(airflow)
    assert read(airflow, "r3") == []
    assert len(airflow.xcoms) == 1


def test_there_is_one_second_copy_only_however_many_runs_there_were(airflow: InMemoryAirflow, sender: Sender) -> None:
    for number in range(110):
        sender.send(f"k{number}")
        read(airflow, f"r{number}")
    assert [holder.run_id for _, holder in airflow.xcoms] == ["r10"]


def test_while_the_asset_is_inactive_the_second_copy_serves(airflow: InMemoryAirflow, sender: Sender) -> None:
    class Deactivated:
        def get(self, key: str, default: Any = None) -> Any:
            return default

        def set(self, key: str, value: Any) -> None:
            raise LookupError("inactive")

    sender.send("a")
    active = airflow.store
    with airflow.task("r1"), Inbox(ORDERS) as inbox:
        airflow.store = Deactivated()
        assert keys(inbox.objects()) == ["a"]
    airflow.store = active
    lose(airflow)
    assert read(airflow, "r2") == []


# whatever is not ours, and arguments


def test_events_of_others_are_left_alone(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.post(None)
    sender.send("a")
    airflow.deliver({"kind": "somebody's", "watcher": "x", "batch_id": "y", "items": []}, at=sender.clock)
    airflow.deliver({"no": "kind"}, at=sender.clock)
    assert read(airflow, "r1", start="earliest") == ["a"]


def test_an_event_of_a_newer_release_is_refused(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.post({**sender.payload(["a"]), "v": 2})
    with pytest.raises(InboxError, match=r"version 2, this package reads version 1\. Upgrade"), airflow.task():
        Inbox(ORDERS).__enter__()


def test_events_come_whole(airflow: InMemoryAirflow, sender: Sender) -> None:
    one = sender.send("a", "b")
    sender.send("c")
    with airflow.task("r1"), Inbox(ORDERS) as inbox:
        first, second = inbox.events()
    assert (first.asset, first.batch_id, first.count, first.bytes) == ("orders", one["batch_id"], 2, 2)
    assert keys(first.items) == ["a", "b"]
    assert keys(second.items) == ["c"]
    assert read(airflow, "r2") == []


def test_an_event_handed_out_in_part_comes_with_the_rest(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a", "b", item("c"))
    with airflow.task("r1"), Inbox(ORDERS) as inbox:
        next(iter(inbox.objects()))
    with airflow.task("r2"), Inbox(ORDERS) as inbox:
        (event,) = inbox.events()
    assert keys(event.items) == ["b", "c"]
    assert (event.count, event.bytes) == (2, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"start": "oldest"}, "start='oldest' is none of 'latest', 'earliest'"),
        ({"on_gap": "ignore"}, "on_gap='ignore' is none of 'raise', 'skip'"),
        ({"consumer": ""}, "consumer='' names nobody"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InboxError, match=message):
        Inbox(ORDERS, **arguments)


@pytest.mark.parametrize("asset", ["orders", None, 3])
def test_what_is_no_asset_is_refused(asset: Any) -> None:
    with pytest.raises(InboxError, match="Give it an Asset"):
        Inbox(asset)


def test_an_asset_may_be_named_by_reference(airflow: InMemoryAirflow, sender: Sender) -> None:
    sender.send("a")
    with airflow.task("r1"), Inbox(Asset.ref(name="orders")) as inbox:
        assert len(inbox) == 1
    with airflow.task("r2"), pytest.raises(LookupError, match="not of asset 'other'"):
        Inbox(Asset("other")).__enter__()


@pytest.fixture(autouse=True)
def _small(airflow: InMemoryAirflow) -> Iterator[None]:
    """Whatever a test does, the stored bookmark stays small."""
    yield
    for value in getattr(airflow.store, "data", {}).values():
        assert len(value) < 64 * 1024
