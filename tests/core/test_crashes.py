"""Watchers that are killed, frozen, cut off and edited by hand anywhere lose nothing and repeat nothing for no reason."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from airflow_state_watchers.core import ledger
from airflow_state_watchers.core.codec import dump_position, load_position
from airflow_state_watchers.core.position import Position
from tests.core.crash_laws import Laws
from tests.core.crash_model import MARKER, ROOT, Process, World, named, segment_key
from tests.core.items import KEYS, at

EDGES = ("0", "1", "settle", "lookback", "settle + lookback")
MANY = 10_000
"""Steps that no poll needs."""


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let segments close after few identities, so that a short run has several."""
    monkeypatch.setattr(ledger, "OPEN_SEGMENT", 2)
    monkeypatch.setattr(ledger, "FULL_SEGMENT", 4)


@pytest.fixture(autouse=True)
def no_log() -> Iterator[None]:
    """Thousands of runs would fill the report with what they log."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


class Crashes(RuleBasedStateMachine):
    """One process at a time, killed anywhere, and deliveries that are not confirmed."""

    starts: tuple[str, ...] = ("earliest",)
    keeps_order = True
    """Whether everything that is stored is named by the root in the end."""

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        drawn = data.draw(
            st.fixed_dictionaries(
                {
                    "settle": st.sampled_from((0, 2)),
                    "lookback": st.sampled_from((0, 1, 5)),
                    "max_items": st.integers(1, 3),
                    "max_in_flight": st.integers(1, 3),
                    "limit": st.sampled_from((0, 100)),
                    "start": st.sampled_from(self.starts),
                    "state_refresh": st.sampled_from((0.0, 30.0)),
                }
            )
        )
        self.make(**drawn)  # type: ignore[arg-type]

    def make(self, *, settle: int, lookback: int, limit: int, start: str, **options: Any) -> None:
        initial = at(-3) if start == "initial" else None
        start = "latest" if initial else start
        self.laws = Laws(settle=settle, lookback=lookback, latest=start == "latest" and initial is None)
        self.world = World(self.laws, limit=limit, start=start, initial_value=initial, **options)
        self.edges = {"0": 0, "1": 1, "settle": settle, "lookback": lookback, "settle + lookback": settle + lookback}
        self.signs = (f"p{number}" for number in count())
        self.processes: list[Process] = []

    @property
    def process(self) -> Process:
        if not self.processes:
            self.processes.append(Process(self.world, next(self.signs)))
        return self.processes[0]

    @property
    def is_storing(self) -> bool:
        return any(process.is_storing for process in self.processes)

    # The source and the clock.

    @rule(
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4),
        edge=st.sampled_from(EDGES),
        beside=st.integers(-1, 1),
    )
    def put(self, keys: list[str], edge: str, beside: int) -> None:
        for key in keys:
            self.world.put(key, self.edges[edge] + beside)

    @precondition(lambda self: self.world.listing)
    @rule(number=st.integers(0, 5))
    def delete(self, number: int) -> None:
        listing = self.world.listing
        del listing[sorted(listing)[number % len(listing)]]

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=2))
    def begin_uploads(self, keys: list[str]) -> None:
        for key in keys:
            self.world.begin_upload(key)

    @precondition(lambda self: self.world.uploads)
    @rule(number=st.integers(0, 5), completed=st.booleans())
    def end_an_upload(self, number: int, completed: bool) -> None:
        upload = self.world.uploads[number % len(self.world.uploads)]
        if completed:
            self.world.complete(upload)
        else:
            self.world.uploads.remove(upload)

    @rule(edge=st.sampled_from(EDGES), halves=st.integers(0, 2))
    def wait(self, edge: str, halves: int) -> None:
        self.world.now += timedelta(seconds=self.edges[edge] + halves / 2)

    # The process.

    @rule()
    def poll(self) -> None:
        self.process.run(MANY, confirm=True)

    @rule(steps=st.integers(1, 25), confirm=st.booleans())
    def run(self, steps: int, confirm: bool) -> None:
        self.process.run(steps, confirm=confirm)

    @precondition(lambda self: self.processes and self.process.in_flight)
    @rule(number=st.integers(1, 3), confirm=st.booleans())
    def persist(self, number: int, confirm: bool) -> None:
        self.process.persist(number, confirm=confirm)

    @precondition(lambda self: self.processes and self.process.in_flight and not self.process.is_storing)
    @rule(persisted=st.booleans(), others=st.booleans())
    def do_not_confirm(self, persisted: bool, others: bool) -> None:
        if not self.process.in_flight[0].confirmed:
            self.process.fail(persisted=persisted, others=others)

    @precondition(lambda self: self.processes)
    @rule(persisted=st.integers(0, 3))
    def kill(self, persisted: int) -> None:
        process = self.processes.pop(0)
        process.persist(persisted, confirm=False)
        process.kill()
        if not self.processes and ROOT not in self.world.state and self.laws.asked is None:
            self.laws.forgotten()

    @rule(persisted=st.integers(0, 3))
    def deliver_and_die(self, persisted: int) -> None:
        """All that one poll finds is on its way, and nothing of it committed, when the process is killed."""
        self.process.run(MANY, confirm=False)
        self.kill(persisted)

    @rule(
        before=st.lists(st.sampled_from(KEYS), max_size=3),
        after=st.lists(st.sampled_from(KEYS), min_size=1, max_size=2),
        edge=st.sampled_from(EDGES),
    )
    def deliver_and_change(self, before: list[str], after: list[str], edge: str) -> None:
        """What was delivered is in the database but not committed, and stands otherwise when it is read again."""
        self.put(before, "settle", 1)
        self.deliver_and_die(persisted=MANY)
        self.put(after, edge, 1)

    @rule(steps=st.integers(1, 4), persisted=st.integers(0, 3))
    def commit_and_die(self, steps: int, persisted: int) -> None:
        """The process is killed between two of the writes of a commit."""
        self.stop_while_committing(steps)
        self.kill(persisted)

    def stop_while_committing(self, steps: int) -> None:
        self.process.run(MANY, confirm=False)
        self.process.persist(MANY, confirm=True)
        self.process.run(steps, confirm=False)

    # Quiescence.

    def teardown(self) -> None:
        if hasattr(self, "world") and not self.laws.broken:
            self.world.active = True
            self.rest()
            for process in self.processes:
                process.kill()

    @rule()
    def rest(self) -> None:
        """Let everything come to an end, first now, then when all stamps have settled, and judge."""
        if not self.world.active:
            return
        for pause in (0, 1, 60, 60):
            self.world.now += timedelta(seconds=pause)
            for process in self.processes or [self.process]:
                self.finish(process)
        self.laws.quiet(self.world.listing.values())
        if self.keeps_order:
            root = self.world.root()
            assert root is not None
            known = named(root) | set(map(segment_key, root["dropped"]))
            assert self.world.stored_segments() <= known | self.world.forgiven, "segments that nobody will ever delete"

    def finish(self, process: Process) -> None:
        for _ in range(100):
            process.run(MANY, confirm=True)
            assert process.is_idle, "stuck"
            if not process.again:
                return
        raise AssertionError("never done")


class People(Crashes):
    """Besides: a store that refuses or loses its answer, people who edit the root, and the loss of the state."""

    starts = ("earliest", "latest", "initial")
    keeps_order = False  # who edits or deletes a root takes away names

    @property
    def can_edit(self) -> bool:
        """Nobody can exclude that a person writes between a process's look and its write, and is overwritten."""
        return self.world.active and ROOT in self.world.state and not self.is_storing

    @rule(steps=st.integers(1, 25), answer=st.sampled_from(("refuse", "do and fail")))
    def fail_at_the_store(self, steps: int, answer: Any) -> None:
        self.process.run(steps, confirm=True, answer=answer)

    @precondition(lambda self: self.can_edit)
    @rule(move=st.none() | st.integers(-8, 8), form=st.sampled_from(("same shape", "bare time", "unsigned")))
    def move_the_watermark(self, move: int | None, form: str) -> None:
        root = self.world.root()
        assert root is not None
        watermark = None
        if move is not None:
            base = load_position(root["watermark"], "watermark") or Position(self.world.source_now)
            watermark = Position(base.value + timedelta(seconds=move), "b" if form == "same shape" else "")
        root["watermark"] = dump_position(watermark)
        if watermark is not None and form == "bare time":
            root["watermark"] = watermark.value.isoformat().replace("+00:00", "Z")
        if form == "unsigned":
            root = {key: value for key, value in root.items() if key not in ("by", "n")}
        self.world.state[ROOT] = text = json.dumps(root)
        self.laws.moved(watermark)
        if text == self.world.written:  # put back, or not changed at all
            self.laws.asked = None

    @precondition(lambda self: self.can_edit)
    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=2), move=st.integers(-2, 8))
    def complete_before_a_generation_begins(self, keys: list[str], move: int) -> None:
        """A process knows of uploads in progress; they are completed, and then it is told to begin elsewhere."""
        self.begin_uploads(keys)
        self.poll()
        self.poll()
        for _ in keys:
            self.end_an_upload(len(self.world.uploads) - 1, completed=True)
        if self.can_edit:
            self.move_the_watermark(move, "bare time")

    @precondition(lambda self: self.can_edit)
    @rule(key=st.sampled_from(KEYS), move=st.integers(-2, 8))
    def complete_while_a_generation_begins(self, key: str, move: int) -> None:
        """An upload is completed after the uploads were asked for and before the objects are listed."""
        self.begin_uploads([key])
        self.world.now += timedelta(seconds=2)
        self.move_the_watermark(move, "bare time")
        for _ in range(100):
            self.process.run(1, confirm=True)
            if self.process.begins:
                break
        self.end_an_upload(len(self.world.uploads) - 1, completed=True)

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=2))
    def store_and_hear_that_it_failed(self, keys: list[str]) -> None:
        """A root is stored and its writer is told that it is not; what it stores next is not what it stored then."""
        self.begin_uploads(keys)
        self.put(["b"], "settle", 1)
        self.process.run_to_a_root()
        self.fail_at_the_store(1, "do and fail")
        self.begin_uploads(keys)
        self.process.run_to_a_root()
        self.kill(0)

    @precondition(lambda self: self.can_edit)
    @rule()
    def delete_the_root(self) -> None:
        root, marker = self.world.root(), json.loads(self.world.state.get(MARKER, "{}"))
        del self.world.state[ROOT]
        if root and root["generation"] == marker.get("generation"):
            self.laws.reset()
        else:  # the writer was killed or cut off between the root and its marker: this looks like a loss
            self.laws.lost(remembered=False)

    @rule(back=st.booleans())
    def lose_the_state(self, back: bool) -> None:
        self.world.state.clear()
        self.world.active = back and not self.is_storing
        remembered = bool(self.processes) and self.process.progress.checkpoint is not None
        self.laws.lost(remembered=remembered)

    @precondition(lambda self: not self.world.active)
    @rule()
    def activate(self) -> None:
        self.world.active = True


class TwoProcesses(Crashes):
    """A second triggerer takes over while the first one is frozen, and the first one thaws, at any point of both."""

    keeps_order = False  # a process may write a segment after the other one has deleted it

    @rule()
    def freeze(self) -> None:
        """The first process stands still from here on and another one goes on, or begins."""
        if len(self.processes) < 2:
            self.processes.append(Process(self.world, next(self.signs)))
        self.processes.append(self.processes.pop(0))

    @rule(persisted=st.integers(0, 3))
    def deliver_and_freeze(self, persisted: int) -> None:
        self.process.run(MANY, confirm=False)
        self.process.persist(persisted, confirm=False)
        self.freeze()

    @rule()
    def freeze_before_a_root(self) -> None:
        """What it writes when it thaws may be overtaken by then."""
        self.process.run_to_a_root()
        self.freeze()

    @rule()
    def overtake(self) -> None:
        """... and is: the other one comes further, and then the old root is written over its own."""
        self.freeze_before_a_root()
        self.poll()
        self.thaw(1, confirm=True)

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=2), persisted=st.integers(0, 3))
    def take_over(self, keys: list[str], persisted: int) -> None:
        """A process that has nothing to do is frozen; another one finds something, delivers it, and is frozen in its turn."""
        for _ in range(2):
            self.poll()
            self.world.now += timedelta(seconds=1)
        self.freeze()
        self.put(keys, "settle", 1)
        self.deliver_and_freeze(persisted)

    @precondition(lambda self: len(self.processes) > 1)
    @rule(steps=st.integers(1, 12), confirm=st.booleans())
    def thaw(self, steps: int, confirm: bool) -> None:
        """The other process goes on for a moment."""
        self.processes[1].run(steps, confirm=confirm)


def case_of(machine: type[RuleBasedStateMachine], examples: int) -> Any:
    """The same histories at each run, so that a change passes or does not; ``make soak`` draws others, and many more."""
    others = int(os.environ.get("OTHER_HISTORIES", "0"))
    case = machine.TestCase
    case.settings = settings(
        max_examples=others or examples,
        derandomize=not others,
        stateful_step_count=40,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    return case


TestCrashes = case_of(Crashes, 200)
TestPeople = case_of(People, 200)
TestTwoProcesses = case_of(TwoProcesses, 300)
