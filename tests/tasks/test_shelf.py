"""Where a bookmark is kept."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_state_watchers import Inbox, InboxError, StateWatcherError
from airflow_state_watchers.core.bookmark_codec import dump, load
from airflow_state_watchers.core.chain import Chains
from airflow_state_watchers.core.numbers import Numbers
from airflow_state_watchers.core.takes import Holder
from airflow_state_watchers.tasks.doubles import InMemoryAirflow
from airflow_state_watchers.tasks.shelf import copy_key, state_key
from tests.tasks.sender import ORDERS, Sender


def test_keys_are_readable() -> None:
    assert state_key("load_orders/load") == "state_watchers.inbox:load_orders/load"
    assert copy_key("load_orders/load") == "state_watchers.inbox:load_orders/load"


@given(st.text(min_size=1, max_size=30).map(lambda text: text * 40) | st.text(min_size=1, max_size=500))
def test_keys_fit_and_differ(consumer: str) -> None:
    assert len(state_key(consumer)) <= 512
    assert len(copy_key(consumer)) <= 512
    assert state_key(consumer) != state_key(consumer + "!")
    assert copy_key(consumer) != copy_key(consumer + "!")
    assert copy_key(consumer).isascii()
    assert not set(copy_key(consumer)) & set("?#% \t\n")


def test_long_names_that_begin_alike_differ() -> None:
    assert state_key("x" * 600 + "a") != state_key("x" * 600 + "b")
    assert state_key("x" * 600).startswith("state_watchers.inbox:xxx")


def bookmark_of(airflow: InMemoryAirflow) -> str:
    (key,) = airflow.store.data  # type: ignore[attr-defined]
    return str(key)


@pytest.fixture
def airflow() -> InMemoryAirflow:
    airflow = InMemoryAirflow(asset="orders")
    Sender(airflow).send("a")
    with airflow.task("r1"), Inbox(ORDERS) as inbox:
        list(inbox.objects())
    return airflow


def test_a_bookmark_that_cannot_be_read_is_refused_by_name(airflow: InMemoryAirflow) -> None:
    airflow.store.set(bookmark_of(airflow), {"v": 9})
    with pytest.raises(InboxError) as raised, airflow.task("r2"):
        Inbox(ORDERS).__enter__()
    assert "consumer 'dag/task' in the state of asset 'orders', key 'state_watchers.inbox:dag/task'" in str(
        raised.value
    )
    assert "another consumer=" in str(raised.value)


def test_the_newest_of_several_copies_counts(airflow: InMemoryAirflow) -> None:
    """A run that was deleted and a keeper that moved may leave an old copy behind."""
    ((key, _), newest) = next(iter(airflow.xcoms.items()))
    old = dump(replace(load(json.loads(newest)), written=1, takes=(), time=None, seen=Numbers(), chains=Chains()))
    for run_id in ("a", "z"):
        airflow.xcoms[key, Holder("dag", run_id, "task")] = json.dumps(old)
    airflow.store.data.clear()  # type: ignore[attr-defined]
    with airflow.task("r2"), Inbox(ORDERS, skip_if_empty=False) as inbox:
        assert len(inbox) == 0


def test_it_fails_only_if_nothing_can_be_stored(airflow: InMemoryAirflow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InMemoryAirflow, "keep", lambda *_: False)
    with airflow.task("r2"), Inbox(ORDERS, skip_if_empty=False):
        pass
    monkeypatch.setattr(InMemoryAirflow, "save", lambda *_: False)
    with pytest.raises(StateWatcherError, match="could be stored nowhere") as raised, airflow.task("r3"):
        Inbox(ORDERS, skip_if_empty=False).__enter__()
    assert not isinstance(raised.value, InboxError), "a retry may find the asset active again"
