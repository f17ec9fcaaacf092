"""Random histories of a table, its watcher and a consumer: whatever dies whenever, the copy ends up equal to the table."""

from __future__ import annotations

import logging
import os
from random import Random
from typing import Any

import pytest

from airflow_state_watchers.row_doubles import InMemoryTransaction
from tests.triggers.rows import Copied

HISTORIES = int(os.environ.get("OTHER_ROW_HISTORIES", "0"))
"""So many others than the ones that every run draws."""
KEYS = [f"key-{number}" for number in range(8)]
STEPS = 70


class History:
    """One drawn history."""

    def __init__(self, seed: int, *, exact: bool) -> None:
        self.random = Random(seed)  # noqa: S311
        arguments: dict[str, Any] = {"start": self.random.choice(["latest", "earliest"])}
        if exact:
            arguments["settle"] = self.random.choice([None, 0, 30])
            arguments["max_hold"] = self.random.choice([None, None, 90])
            arguments["lookback"] = self.random.choice([None, 200])
        else:
            arguments |= {"settle": 5, "lookback": 600}
        arguments["max_rows_per_event"] = self.random.choice([None, 1, 3])
        self.exact = exact
        self.copied = Copied(exact=exact, is_sequence=self.random.random() < 0.5, **arguments)
        self.open: list[InMemoryTransaction] = []
        self.expected: dict[str, Any] = {}
        """Versions that were put after the watcher had begun."""

    def run(self) -> None:
        copied = self.copied
        copied.table.put("old")
        while "state_watchers:orders/w" not in copied.harness.store.data:
            copied.pass_time(10)
            copied.poll()
        for _ in range(STEPS):
            self.step()
        for transaction in self.open:
            transaction.commit()
        copied.rest()
        copied.rest()
        table = {key: value for key, value in copied.table.values.items() if key != "old"}
        missing = {key: value for key, value in table.items() if copied.target.get(key) != value}
        assert not missing, missing
        self.check_tiles()

    def check_tiles(self) -> None:
        """Apart from what is read again on purpose, each row version lies in one window: no two of them overlap."""
        parse = self.copied.table.parse
        seen: set[str] = set()
        end: Any = None
        for event in self.copied.harness.events:
            if event["reread"] or event["batch_id"] in seen:
                continue
            seen.add(event["batch_id"])
            assert len(seen) == 1 or parse(event["low"]) >= parse(end), (
                f"a window at {event['low']} overlaps one to {end}"
            )
            end = event["high"]

    def step(self) -> None:
        random, copied = self.random, self.copied
        what = random.choice(
            ["put", "put", "open", "write", "end", "time", "time", "poll", "poll", "read", "die", "delete", "prepare"]
        )
        if what == "put":
            copied.table.put(random.choice(KEYS))
        elif what == "open" and len(self.open) < 3:
            self.open.append(copied.table.begin())
        elif what == "write" and self.open:
            self.write(random.choice(self.open))
        elif what == "end" and self.open:
            self.end(self.open.pop(random.randrange(len(self.open))))
        elif what == "time":
            self.pass_time(random.choice([0.1, 1, 4, 29, 30, 61, 61, 120]))
        elif what == "poll":
            copied.poll()
        elif what == "read":
            copied.consume(upper=random.choice(["window", "now"]))
        elif what == "die":
            self.die()
        elif what == "prepare" and self.open and self.exact:
            transaction = random.choice(self.open)
            if not transaction.is_prepared:
                transaction.prepare()
        elif what == "delete":
            copied.table.delete(random.choice(KEYS))

    def write(self, transaction: InMemoryTransaction) -> None:
        """Write a row that no other open transaction has locked."""
        locked = {key for other in self.open if other is not transaction for key in other.puts}
        if transaction.is_prepared:
            return
        key = self.random.choice([key for key in KEYS if key not in locked])
        transaction.put(key)

    def end(self, transaction: InMemoryTransaction) -> None:
        transaction.commit() if self.random.random() < 0.8 else transaction.rollback()

    def pass_time(self, seconds: float) -> None:
        """Elsewhere than on a database with an exact horizon nothing may stay open for longer than settle and lookback."""
        copied = self.copied
        copied.pass_time(seconds)
        if not self.exact:
            for transaction in [each for each in self.open if (copied.clock.now() - each.since).total_seconds() > 400]:
                self.open.remove(transaction)
                transaction.commit()

    def die(self) -> None:
        crash = self.random.choice([None, "before_confirm", "before_commit"])
        if crash is None:
            self.copied.harness.restart()
        else:
            self.copied.poll(crash=crash)


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "clock"])
@pytest.mark.parametrize("part", range(8))
def test_a_copy_ends_up_equal(part: int, exact: bool) -> None:
    logging.disable(logging.CRITICAL)
    try:
        for seed in range(part * 25, part * 25 + 25):
            run(seed, exact)
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.skipif(not HISTORIES, reason="OTHER_ROW_HISTORIES=n draws n other histories")
@pytest.mark.parametrize("exact", [True, False], ids=["exact", "clock"])
def test_other_histories(exact: bool) -> None:
    first = int.from_bytes(os.urandom(4), "big")
    for seed in range(first, first + HISTORIES):
        run(seed, exact)


def run(seed: int, exact: bool) -> None:
    try:
        History(seed, exact=exact).run()
    except AssertionError as error:
        raise AssertionError(f"history {seed}: {error}") from None
