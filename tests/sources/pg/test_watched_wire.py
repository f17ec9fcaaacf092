"""What reaches the server: statements without values, and few connections."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import BaseHook

from tests.sources.pg.conftest import Place, Watch

CANARY = "canary"
START, TIED, LAST = 'canary\'0 "start"', "canary'1; --", "canary'2 %s $1"
KEY = "canary'key"

Statements = Callable[[], tuple[str, str]]


@pytest.fixture
def logged(place: Place) -> Statements:
    """Return the statements that the server has logged since the last call, and the values that came with them."""
    log = place.server.log
    place_in_log = log.stat().st_size

    def logged() -> tuple[str, str]:
        nonlocal place_in_log
        with log.open("rb") as file:
            file.seek(place_in_log)
            text = file.read().decode()
            place_in_log = file.tell()
        # Each entry begins with a time; what goes on over several lines is indented.
        entries = re.split(r"\n(?=\S)", text)
        values = [entry for entry in entries if re.search(r"DETAIL:  Parameters: ", entry)]
        return "\n".join(entry for entry in entries if entry not in values), "\n".join(values)

    return logged


async def log_all(place: Place) -> None:
    """Let the server log what those say who connect from now on."""
    async with await place.connect() as connection:
        await connection.execute(f"ALTER DATABASE {place.name} SET log_statement = 'all'".encode())


@pytest.mark.parametrize("payload", ["window", "rows"])
@pytest.mark.parametrize("lookback", [0, 600])
@pytest.mark.parametrize("keys", [["id"], []])
async def test_values_are_parameters_and_never_part_of_a_statement(
    watch: Watch, place: Place, logged: Statements, payload: str, lookback: int, keys: list[str]
) -> None:
    watched = watch(
        table="t",
        watermark_column="v",
        key_columns=keys,
        initial_value=START,
        payload=payload,
        lookback=lookback,
        max_rows_per_event=2,
    )
    await watched.run("CREATE TABLE t (id text, v text NOT NULL)")
    rows = [(f"{KEY}{number}", START if number < 2 else TIED if number < 7 else LAST) for number in range(9)]
    for row in rows:
        await watched.run("INSERT INTO t VALUES (%s, %s)", row)
    await log_all(place)
    logged()
    await watched.polls(3)
    await watched.restart()
    await watched.polls(3)
    statements, values = logged()
    assert "execute <unnamed>: " in statements
    assert CANARY not in statements
    assert all(value.replace("'", "''") in values for value in (START, TIED, LAST))
    windows = list(watched.windows)
    found = await watched.read(chunksize=3)
    assert [(row["id"], row["v"]) for row in found] == rows
    statements, values = logged()
    assert CANARY not in statements
    if keys:
        assert KEY.replace("'", "''") in values  # the place of a page
    _check_predicate(windows[0], logged)


def _check_predicate(window: Any, logged: Statements) -> None:
    hook: Any = BaseHook.get_connection(window.conn_id).get_hook()  # type: ignore[no-untyped-call]
    p = window.predicate("o")
    assert CANARY not in p.sql
    assert hook.get_records(f"SELECT count(*) FROM t o WHERE {p.sql}", p.parameters) == [(window.count,)]
    statements, values = logged()
    assert "SELECT count(*) FROM t o" in statements
    assert CANARY not in statements
    assert CANARY in values


async def test_a_hundred_watchers_of_one_process_share_four_connections(watch: Watch, place: Place) -> None:
    watchers = [watch(name=f"watcher {number}") for number in range(100)]
    await watchers[0].run("INSERT INTO orders VALUES (1), (2)")
    most, polls = 0, 0

    async def count() -> None:
        nonlocal most
        async with await place.connect("postgres") as connection:
            while True:
                cursor = await connection.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'airflow-state-watchers' AND datname = %s",
                    [place.name],
                )
                ((number,),) = await cursor.fetchall()
                most = max(most, int(number))
                await asyncio.sleep(0.01)

    counting = asyncio.create_task(count())
    for _ in range(2):
        events = await asyncio.gather(*(each.poll() for each in watchers))
        polls += sum(len(each) for each in events)
    counting.cancel()
    assert polls == 100
    assert 1 < most <= 4
    assert not any(each.error for each in watchers)
