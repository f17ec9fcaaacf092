"""The public double: a task's own function, run on given items."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from airflow.sdk import task
from airflow.sdk.exceptions import AirflowSkipException

from airflow_state_watchers import Inbox, S3Object
from airflow_state_watchers.tasks.recorded import inbox
from tests.tasks.sender import ORDERS, START

ITEMS = [S3Object("lake", f"orders/{name}.csv", 1, name, START) for name in "abcd"]


@task(inlets=[ORDERS])
def load(stop: int = 99, commit: int = 99, fail: bool = False) -> list[str]:
    seen = []
    with Inbox(ORDERS, consumer="named") as box:
        for number, obj in enumerate(box.objects(), 1):
            seen.append(obj.key)
            if number == commit:
                box.commit()
            if number == stop:
                break
        if fail:
            raise ValueError
    return seen


run: Callable[..., list[str]] = load.function


def test_all_is_done() -> None:
    with inbox(ORDERS, ITEMS) as recorded:
        assert run() == [item.key for item in ITEMS]
    assert recorded.done == ITEMS
    assert recorded.left == []


def test_what_was_not_reached_is_left() -> None:
    with inbox(ORDERS, ITEMS) as recorded:
        run(stop=3)
    assert recorded.done == ITEMS[:3]
    assert recorded.left == ITEMS[3:]


def test_a_failure_leaves_all_but_what_was_committed() -> None:
    with pytest.raises(ValueError), inbox(ORDERS, ITEMS) as recorded:  # noqa: PT011  it has no message
        run(commit=1, fail=True)
    assert recorded.done == ITEMS[:1]
    assert recorded.left == ITEMS[1:]


def test_it_can_be_asked_inside_the_block() -> None:
    with inbox(ORDERS, ITEMS) as recorded:
        assert recorded.left == ITEMS
        run()
        assert recorded.done == ITEMS


def test_several_buckets_keep_their_order() -> None:
    items = [*ITEMS[:2], S3Object("pond", "x", 1, "x", START), *ITEMS[2:]]
    with inbox(ORDERS, items) as recorded:
        run(stop=3)
    assert recorded.done == items[:3]


def test_a_list_for_copies_is_not_done_by_the_task_that_takes_it() -> None:
    with inbox(ORDERS, ITEMS) as recorded:
        taken = Inbox(ORDERS).take(group=3, done_by="copy")
    assert taken == [ITEMS[:3], ITEMS[3:]]
    assert recorded.left == ITEMS
    with inbox(ORDERS, ITEMS) as recorded:
        assert Inbox(ORDERS).take() == ITEMS
    assert recorded.done == ITEMS


def test_without_items_the_task_is_skipped() -> None:
    with pytest.raises(AirflowSkipException), inbox(ORDERS, []):
        run()


def test_two_assets_at_once() -> None:
    others = ORDERS.__class__("others")
    with inbox(ORDERS, ITEMS) as first, inbox(others, ITEMS[:1]) as second:
        run()
        assert [obj.key for obj in Inbox(others).objects()] == [ITEMS[0].key]
    assert first.left == second.left == []
