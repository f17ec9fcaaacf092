"""The laws of the core, on polls that nothing disturbs: what is new is delivered once, in order, however late it appears.

Delays are drawn from the edges, since laws break there; stamps are whole seconds, as S3's are. What happens when processes
die is in ``test_crashes``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_state_watchers.core.batch import Batch, step
from airflow_state_watchers.core.checkpoint import Checkpoint, Start
from airflow_state_watchers.core.codec import dump_root, dump_segment, load_root, load_segment
from airflow_state_watchers.core.ledger import Ledger
from airflow_state_watchers.core.position import Item, Position
from airflow_state_watchers.core.window import Selection, plan
from tests.core.items import KEYS, NOON, blank, item, restored, seconds


@dataclass
class Watcher:
    """Polls a listing and commits all that it delivers; between polls it may be started anew from what is stored."""

    settle: int
    lookback: int
    max_items: int = 3
    limit: int = 100
    checkpoint: Checkpoint = field(default_factory=blank)
    delivered: list[Batch] = field(default_factory=list)
    polls: int = 0

    def poll(self, now: datetime, listing: Sequence[Item]) -> list[Batch]:
        """Poll once; look again at once while there is more than one poll can hold."""
        found: list[Batch] = []
        for _ in range(100):
            batches, complete = self._look(now, listing)
            found += batches
            if complete:
                self.delivered += found
                return found
        raise AssertionError("never done")

    def _look(self, now: datetime, listing: Sequence[Item]) -> tuple[list[Batch], bool]:
        settle, lookback = seconds(self.settle), seconds(self.lookback)
        window = plan(self.checkpoint, now, settle=settle, lookback=lookback)
        selection = Selection(window, self.checkpoint.ledger, limit=self.limit)
        selection.add(listing)
        selected = selection.result()
        batches = step(self.checkpoint, selected, max_items=self.max_items)
        for batch in batches:
            self.polls += 1
            self.checkpoint = self.checkpoint.intend(batch.intent, closes=batch.closes).commit(
                batch.intent, batch.items, lookback=lookback, segment=f"s{self.polls}"
            )
        if not batches:
            self.checkpoint = self.checkpoint.scanned(selected.upto)
        return batches, selected.complete

    def restart(self) -> None:
        stored = {segment.name: json.dumps(dump_segment(segment)) for segment in self.checkpoint.ledger.segments}
        signed = replace(self.checkpoint, by="p1", n=1)
        root = load_root(json.loads(json.dumps(dump_root(signed))), blank(origin="other"))
        self.checkpoint = restored(root, [load_segment(name, json.loads(stored[name])) for name in root.segments])
        assert self.checkpoint == signed


EDGES = st.tuples(st.sampled_from(("0", "settle", "lookback", "settle + lookback")), st.integers(-1, 1))


@dataclass
class Round:
    """Some objects appear, with stamps so many seconds old; then time passes, and the watcher polls."""

    puts: list[tuple[str, tuple[str, int]]]
    pause: tuple[str, int]
    polls: bool
    restarts: bool


ROUNDS = st.lists(
    st.builds(
        Round,
        puts=st.lists(st.tuples(st.sampled_from(KEYS), EDGES), max_size=3),
        pause=EDGES,
        polls=st.booleans(),
        restarts=st.booleans(),
    ),
    max_size=12,
)
WATCHERS = st.builds(
    Watcher,
    settle=st.sampled_from((0, 1, 3)),
    lookback=st.sampled_from((0, 1, 4)),
    max_items=st.integers(1, 3),
    limit=st.sampled_from((1, 2, 100)),
)


@dataclass
class Run:
    """What has become of a watcher after some rounds, and of everything it could have seen."""

    watcher: Watcher
    now: datetime = NOON
    listing: dict[str, Item] = field(default_factory=dict)
    in_time: dict[bytes, bool] = field(default_factory=dict)
    history: list[Checkpoint] = field(default_factory=list)
    polls: list[list[Batch]] = field(default_factory=list)

    def play(self, rounds: Sequence[Round]) -> Run:
        for number, round_ in enumerate(rounds):
            for key, age in round_.puts:
                self.put(key, self.span(age), etag=f"{number}")
            self.now += timedelta(seconds=max(0, self.span(round_.pause)))
            if round_.polls:
                self.poll()
            if round_.restarts:
                self.watcher.restart()
        for pause in (0, 10, 10):  # until all stamps have settled
            self.now += timedelta(seconds=pause)
            self.poll()
        return self

    def span(self, edge: tuple[str, int]) -> int:
        settle, lookback = self.watcher.settle, self.watcher.lookback
        known = {"0": 0, "settle": settle, "lookback": lookback, "settle + lookback": settle + lookback}
        return known[edge[0]] + edge[1]

    def put(self, key: str, age: int, etag: str) -> None:
        new = item((self.now - NOON).total_seconds() - age, key, etag)
        self.listing[key] = new
        self.in_time[new.identity] = age <= self.watcher.settle + self.watcher.lookback

    def poll(self) -> None:
        self.polls.append(self.watcher.poll(self.now, list(self.listing.values())))
        self.history.append(self.watcher.checkpoint)


@given(WATCHERS, ROUNDS)
def test_nothing_is_lost_that_appears_within_the_lookback(watcher: Watcher, rounds: list[Round]) -> None:
    run = Run(watcher).play(rounds)
    delivered = {item.identity for batch in watcher.delivered for item in batch.items}
    assert {item.identity for item in run.listing.values() if run.in_time[item.identity]} <= delivered


@given(WATCHERS, ROUNDS)
def test_nothing_is_delivered_twice(watcher: Watcher, rounds: list[Round]) -> None:
    Run(watcher).play(rounds)
    delivered = [item.identity for batch in watcher.delivered for item in batch.items]
    assert len(delivered) == len(set(delivered))


@given(WATCHERS, ROUNDS)
def test_watermark_and_frontier_never_go_back(watcher: Watcher, rounds: list[Round]) -> None:
    history = Run(watcher).play(rounds).history
    marks = [checkpoint.watermark for checkpoint in history if checkpoint.watermark is not None]
    fronts = [checkpoint.frontier for checkpoint in history if checkpoint.frontier is not None]
    assert marks == sorted(marks)
    assert fronts == sorted(fronts)
    assert len(fronts) == len(history), "from the first poll on there is a frontier"
    for checkpoint in history:
        assert checkpoint.watermark is None or checkpoint.watermark <= (checkpoint.frontier or checkpoint.watermark)


@given(WATCHERS, ROUNDS)
def test_the_watermark_is_the_greatest_position_delivered(watcher: Watcher, rounds: list[Round]) -> None:
    Run(watcher).play(rounds)
    positions = [item.position for batch in watcher.delivered for item in batch.items]
    assert watcher.checkpoint.watermark == max(positions, default=None)


@given(WATCHERS, ROUNDS)
def test_what_one_poll_delivers_is_in_order_and_settled(watcher: Watcher, rounds: list[Round]) -> None:
    for checkpoint, batches in zip((run := Run(watcher).play(rounds)).history, run.polls, strict=True):
        positions = [item.position for batch in batches for item in batch.items]
        assert positions == sorted(positions)
        assert all(len(batch.items) <= watcher.max_items for batch in batches)
        assert checkpoint.frontier is not None
        assert all(position <= checkpoint.frontier for position in positions)


@given(WATCHERS, ROUNDS)
def test_batches_are_one_chain(watcher: Watcher, rounds: list[Round]) -> None:
    Run(watcher).play(rounds)
    ids = [batch.batch_id for batch in watcher.delivered]
    assert [batch.previous for batch in watcher.delivered] == [None, *ids][: len(ids)]
    assert len(ids) == len(set(ids))
    assert watcher.checkpoint.last_batch == (ids[-1] if ids else None)


@given(WATCHERS, ROUNDS)
def test_a_poll_that_finds_nothing_changes_nothing_but_the_frontier(watcher: Watcher, rounds: list[Round]) -> None:
    run = Run(watcher).play(rounds)
    before = watcher.checkpoint
    run.now += timedelta(seconds=1000)
    run.poll()
    assert run.polls[-1] == []
    assert watcher.checkpoint == before.scanned(Position(run.now - seconds(watcher.settle)))


@given(WATCHERS, ROUNDS)
def test_the_ledger_holds_no_more_than_the_lookback_needs(watcher: Watcher, rounds: list[Round]) -> None:
    Run(watcher).play(rounds)
    stored = watcher.checkpoint.pruned(seconds(watcher.lookback))
    if stored.watermark is not None:
        low = stored.watermark.value - seconds(watcher.lookback)
        assert all(segment.high >= low for segment in stored.ledger.segments)
    delivered = {item.identity for batch in watcher.delivered for item in batch.items}
    assert all(set(segment) <= delivered for segment in stored.ledger.segments)


@given(WATCHERS, ROUNDS, st.integers(-4, 4))
@example(Watcher(0, 4), [Round([("a", ("0", 0))], ("0", 0), False, False)], 0)
def test_a_generation_delivers_what_is_after_its_place_and_nothing_before(
    watcher: Watcher, rounds: list[Round], place: int
) -> None:
    """After a person moved the watermark: what stands up to there counts as seen, the rest comes (again)."""
    run = Run(watcher).play(rounds)
    start = Start(Position(run.now + timedelta(seconds=place - 24), "b"))
    low = start.low(seconds(watcher.lookback))
    standing = list(run.listing.values())
    seen = [item for item in standing if low is not None and item.position.value >= low and start.sees(item)]
    watcher.checkpoint = start.begin(
        watcher.checkpoint, Ledger().with_items(seen, name="seen"), floor=start.low(seconds(watcher.lookback))
    )
    watcher.delivered.clear()
    run.poll()
    delivered = {item.identity for batch in watcher.delivered for item in batch.items}
    assert start.watermark is not None
    assert delivered == {item.identity for item in standing if item.position > start.watermark}


# The edges by hand, so that a drawn example is not the only one that stands on them.


@pytest.mark.parametrize("settle", [0, 3])
@pytest.mark.parametrize("lookback", [0, 4])
@pytest.mark.parametrize(("beside", "comes"), [(-1, True), (0, True), (1, False)])
def test_an_item_may_be_late_by_settle_and_lookback_and_no_more(
    settle: int, lookback: int, beside: int, comes: bool
) -> None:
    run = Run(Watcher(settle, lookback))
    run.poll()  # the frontier is now - settle
    run.put("late", settle + lookback + beside, "1")
    run.now += timedelta(seconds=100)
    run.poll()
    assert bool(run.polls[-1]) == comes


@pytest.mark.parametrize("settle", [0, 3])
def test_an_item_is_read_once_it_is_older_than_settle(settle: int) -> None:
    run = Run(Watcher(settle, lookback=0))
    run.put("new", 0, "1")
    for second in range(settle + 2):
        run.poll()
        assert bool(run.polls[-1]) == (second == settle + 1)
        run.now += timedelta(seconds=1)


def test_a_whole_second_of_ties_is_read_in_parts() -> None:
    run = Run(Watcher(0, lookback=0, max_items=2, limit=3))
    for key in "gfedcba":
        run.put(key, 1, "1")
    run.poll()
    assert ["".join(item.position.tiebreak for item in batch.items) for batch in run.polls[-1]] == [
        "ab",
        "c",
        "de",
        "f",
        "g",
    ]
