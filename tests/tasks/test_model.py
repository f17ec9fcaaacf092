"""The laws of the inbox against a model of who did what, through every order of events, runs, failures and losses."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from airflow.sdk.exceptions import AirflowSkipException
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from airflow_state_watchers import Inbox
from airflow_state_watchers.core.bookmark_codec import dump, load
from airflow_state_watchers.tasks.doubles import InMemoryAirflow
from tests.tasks.sender import ORDERS, Sender

CONSUMER = "state_watchers.inbox:dag/task"


class Killed(BaseException):
    """The worker was killed: nothing after this line of the task ran."""


@dataclass
class Run:
    """What one run has come to: what it has ``finished``, and what it finished in tries that failed afterwards."""

    run_id: str
    state: str = "new"
    tries: int = 0
    finished: set[str] = field(default_factory=set)
    committed: set[str] = field(default_factory=set)


class Consumer(RuleBasedStateMachine):
    """Runs come one at a time, as with ``max_active_runs=1``."""

    def __init__(self) -> None:
        super().__init__()
        self.airflow = InMemoryAirflow(asset="orders", retries=1)
        self.sender = Sender(self.airflow)
        self.sent: list[str] = []
        self.batches: list[dict[str, Any]] = []
        self.done: set[str] = set()
        self.runs: list[Run] = []
        self.lost = False

    @initialize()
    def first_run(self) -> None:
        """The consumer begins on an empty asset, so that everything sent is its own."""
        self._go(Run("first"), handle=99, commit_at=None, end="succeed")

    # what arrives

    @rule(count=st.integers(1, 4))
    def arrive(self, count: int) -> None:
        names = [f"k{len(self.sent) + number}" for number in range(count)]
        self.sent += names
        self.batches.append(self.sender.send(*names))

    @rule(seconds=st.sampled_from([0, 1, 5, 300, 590]))
    def arrive_late(self, seconds: int) -> None:
        """Another host's clock is behind, or its transaction was long: the event is older than what is visible already."""
        name = f"k{len(self.sent)}"
        self.sent.append(name)
        payload = self.sender.payload([name])
        self.sender.post(payload, late=timedelta(seconds=seconds))
        self.sender.previous = payload["batch_id"]
        self.batches.append(payload)

    @rule()
    def pass_by(self) -> None:
        """Somebody else's event, and time."""
        self.sender.clock += timedelta(minutes=7)
        self.sender.post(None)

    @precondition(lambda self: self.batches)
    @rule()
    def replay(self) -> None:
        self.sender.post(self.batches[-1])

    @precondition(lambda self: self.batches)
    @rule(new=st.integers(0, 2))
    def replay_changed(self, new: int) -> None:
        """After a crash the last batch came with other content: some of it gone, some new."""
        old = self.batches[-1]
        assume(old["generation"] == self.sender.generation)
        names = [f"k{len(self.sent) + number}" for number in range(new)]
        kept = old["items"][: len(old["items"]) - 1]
        assume(kept or names)
        self.sent += names
        self.sender.previous = old["previous"]
        replaced = [old["batch_id"], *old.get("replaces", [])]
        self.batches[-1] = self.sender.send(*kept, *names, replaces=replaced)

    @rule()
    def move_watermark(self) -> None:
        """A person moved it: a new generation begins, and nothing of it is a repeat."""
        self.sender.generation += 1
        self.sender.previous = None
        self.batches.clear()

    @rule()
    def lose_state(self) -> None:
        self.airflow.store.data.clear()  # type: ignore[attr-defined]
        self.lost = True

    # what runs

    @rule(
        handle=st.integers(0, 8),
        commit_at=st.none() | st.integers(1, 8),
        end=st.sampled_from(["succeed", "succeed", "fail", "fail after", "killed"]),
    )
    def run(self, handle: int, commit_at: int | None, end: str) -> None:
        self._go(Run(f"r{len(self.runs)}"), handle=handle, commit_at=commit_at, end=end)

    @precondition(lambda self: self.runs and self.runs[-1].state == "failed")
    @rule(handle=st.integers(0, 8), end=st.sampled_from(["succeed", "fail", "killed"]))
    def retry(self, handle: int, end: str) -> None:
        self._go(self._chosen(-1), handle=handle, commit_at=None, end=end)

    @precondition(lambda self: self.runs)
    @rule(which=st.integers(0, 30), handle=st.integers(0, 12), end=st.sampled_from(["succeed", "fail"]))
    def clear(self, which: int, handle: int, end: str) -> None:
        run = self._chosen(which % len(self.runs))
        self.airflow.clear(run.run_id)
        maybe = run.committed if run.state != "new" else set()
        if run.state == "success":
            self.done -= run.finished  # a person wants these again
            run.finished = set()
        self._go(run, handle=handle, commit_at=None, end=end, maybe=maybe)

    def _chosen(self, which: int) -> Run:
        """The run whose XComs hold the second copy loses them when it starts: not while they are all there is."""
        run = self.runs[which]
        assume(not self.lost or all(holder.run_id != run.run_id for _, holder in self.airflow.xcoms))
        del self.runs[which]
        return run

    def _go(self, run: Run, *, handle: int, commit_at: int | None, end: str, maybe: Collection[str] = ()) -> None:
        wanted = set(self.sent) - self.done
        run.tries += 1
        given: list[str] = []
        promised = 0
        try:
            with self.airflow.task(run.run_id, run.tries):
                inbox = Inbox(ORDERS)
                inbox.__enter__()
                promised = len(inbox)
                try:
                    for obj in inbox.objects() if handle else ():
                        given.append(obj.key)
                        if len(given) == commit_at:
                            inbox.commit()
                            self._commit(run, given)
                        if len(given) == handle:
                            break
                    if end == "fail":
                        raise RuntimeError
                    if end == "killed":
                        raise Killed
                except RuntimeError as error:
                    inbox.__exit__(RuntimeError, error, None)
                    raise
                inbox.__exit__(None, None, None)
                if end == "fail after":
                    raise RuntimeError
        except AirflowSkipException:
            run.state = "skipped"
        except (RuntimeError, Killed):
            run.state = "failed"
        else:
            run.state = "success"
            run.finished.update(given)
            self.done.update(given)
        self.lost = False
        self.runs.append(run)
        assert len(given) == len(set(given)), "nothing comes twice in one opening"
        assert set(given) <= wanted | set(maybe), "only what is open, or what a person wants again"
        assert len(wanted) <= promised <= len(wanted | set(maybe)), "everything that is open was taken"
        if handle >= len(wanted | set(maybe)):
            assert wanted <= set(given), "everything that was taken is handed out"

    def _commit(self, run: Run, given: list[str]) -> None:
        run.committed.update(given)
        run.finished.update(given)
        self.done.update(given)

    @invariant()
    def the_state_is_small_and_round(self) -> None:
        stored = self.airflow.store.get(CONSUMER)
        if stored is not None:
            assert dump(load(stored)) == stored

    def teardown(self) -> None:
        """In the end a run without a fault finishes everything that was ever sent."""
        self._go(Run("last"), handle=10_000, commit_at=None, end="succeed")
        assert self.done == set(self.sent)


def test_the_laws_hold() -> None:
    run_state_machine_as_test(Consumer, settings=settings(max_examples=60, stateful_step_count=30, deadline=None))
