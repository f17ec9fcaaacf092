"""The SQL watcher on a real Airflow: whatever is killed meanwhile, the copies of a table end up equal to it.

The story is played once, and each test looks at a side of it: three watchers of one table in one triggerer. Of the first a
task reads windows, of the second the rows in the events; the third has a wrong password until the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql

from airflow_state_watchers.demo.airflow import Airflow
from airflow_state_watchers.demo.shop import FUTURE_ID, Shop
from system_tests.copies import ALL, LATE, PREPARED, RIGHT, ROWS, UNDONE, WATCHER, WINDOWS, WRONG, Story, only_row

IDLE = timedelta(seconds=20)
"""Four polls."""
NEWEST_QUERY = "SELECT max(query_start), now() FROM pg_stat_activity WHERE application_name = 'airflow-state-watchers'"


@pytest.fixture(scope="module")
def story(shared_airflow: Airflow, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with Shop() as shop:
        story = Story(shared_airflow, shop, tmp_path_factory.mktemp("told") / "die")
        try:
            story.play()
            yield story
        finally:
            (shared_airflow.home / "dags" / "sql_watchers.py").unlink(missing_ok=True)
            shared_airflow.restore()


@pytest.mark.parametrize("name", ALL)
def test_the_copy_equals_the_table_whatever_was_killed(story: Story, name: str) -> None:
    """That they are equal the story has waited for: here is what makes it worth something."""
    assert {"committed at once", "rolled back", "long", "idle before its commit", "prepared"} == set(story.shop.counts)
    copied = {
        row[0] for row in story.shop.connection.execute(sql.SQL("SELECT id FROM {}").format(sql.Identifier(name)))
    }
    assert {LATE, PREPARED, 5001, 5120} <= copied
    assert copied.isdisjoint({UNDONE, FUTURE_ID})
    states = {run["state"] for run in story.airflow.rest.dag_runs(name)}
    assert states == {"success"}


def test_a_killed_task_is_retried_and_reads_its_window_again(story: Story) -> None:
    assert not story.die.exists()
    rest = story.airflow.rest
    tries = [
        instance["try_number"]
        for run in rest.dag_runs(WINDOWS)
        for instance in rest.task_instances(WINDOWS, run["dag_run_id"])
    ]
    assert sorted(set(tries)) == [1, 2]
    assert tries.count(2) == 1


@pytest.mark.parametrize("name", ALL)
def test_every_event_has_the_documented_flat_shape(story: Story, name: str) -> None:
    payloads = story.payloads(name)
    documented = _documented()
    optional = {"where", "replaces"}
    for payload in payloads:
        assert set(payload) - optional == set(documented) - optional
        assert payload["kind"] == ("sql_rows" if name == ROWS else "sql_window")
        assert payload["watcher"] == WATCHER
        for key, value in payload.items():
            assert key in ("low", "previous", "replaces") or type(value) is type(documented[key])
            assert not isinstance(value, dict)
        rows = payload["items"]
        assert len(rows) == (payload["count"] if name == ROWS else 0)
        assert all(set(row) == {"id", "amount", "updated_at"} for row in rows)


@pytest.mark.parametrize("name", ALL)
def test_events_chain_and_none_is_empty(story: Story, name: str) -> None:
    payloads = story.payloads(name)
    known: set[str | None] = {None}
    for payload in payloads:
        assert payload["count"] > 0
        assert payload["previous"] in known
        known.add(payload["batch_id"])
    assert len({payload["batch_id"] for payload in payloads if payload["previous"] is None}) == 1
    places = [(payload["trigger_run_id"], payload["sequence_index"]) for payload in payloads]
    assert len(set(places)) == len(places)
    assert {payload["generation"] for payload in payloads} == {1}


def test_a_wrong_password_is_visible_and_shown_nowhere(story: Story) -> None:
    record, log = story.refused, story.airflow.log("triggerer")
    assert story.events_while_refused == 0
    assert record["state"] == "failing"
    assert record["last_error"]["kind"] == "SourceDenied"
    assert "connection 'shop_refused'" in record["last_error"]["message"]
    assert "the login is not accepted" in record["last_error"]["message"]
    assert "the login is not accepted" in log
    assert f"{WATCHER}: works again after" in log
    states = [story.airflow.rest.states(name) for name in ALL]
    everywhere = log + json.dumps([record, states, [story.payloads(name) for name in ALL]])
    assert WRONG not in everywhere
    assert RIGHT not in everywhere


def test_an_idle_table_starts_nothing_and_one_row_starts_one_run(story: Story) -> None:
    before = story.counts()
    (_, began) = only_row(story.shop.connection, NEWEST_QUERY)

    def polled_long_enough() -> bool:
        newest: datetime = only_row(story.shop.connection, NEWEST_QUERY)[0]
        return newest > began + IDLE

    story.airflow.wait_for(polled_long_enough, 60, "idle polls")
    assert story.counts() == before
    story.shop.connection.execute("INSERT INTO orders (id, amount) VALUES (6000, 1)")
    story.wait_for_copies(*ALL)
    story.wait_until_idle()
    assert story.counts() == {name: (events + 1, runs + 1) for name, (events, runs) in before.items()}


def _documented() -> dict[str, Any]:
    """Return the event of a SQL watcher as its reference page shows it."""
    page = (Path(__file__).parents[1] / "docs" / "reference" / "event.rst").read_text()
    blocks = re.findall(r"\.\. code-block:: json\n\n(.*?)\n(?=\S)", page, flags=re.DOTALL)
    (event,) = [event for event in map(json.loads, blocks) if event.get("kind") == "sql_window"]
    return dict(event)
