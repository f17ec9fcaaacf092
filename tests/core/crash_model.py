"""A watcher's processes, their source and the asset's state, in memory and without a loop, to be killed anywhere.

A :class:`Process` runs the package's own ``Progress`` and ``CheckpointStore`` and does around them what the producer does:
plan, scan, step, intend, deliver; then confirm, commit. It stops before every operation on the store, at every page of a
listing and after every delivery, and goes on only when it is told to: so it can be killed or frozen between any two writes.

What may be lost, repeated or reordered is judged in :mod:`tests.core.crash_laws`, which hears of everything that happens.
"""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import AsyncGenerator, Collection, Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count, takewhile
from typing import Any, Literal

from airflow_state_watchers.core.batch import Batch
from airflow_state_watchers.core.checkpoint import Checkpoint, later
from airflow_state_watchers.core.codec import load_position
from airflow_state_watchers.core.envelope import event_of
from airflow_state_watchers.core.position import Item
from airflow_state_watchers.core.uploads import Upload, upload_id
from airflow_state_watchers.core.verdict import Verdict
from airflow_state_watchers.exceptions import CheckpointError
from airflow_state_watchers.ports import Skip
from airflow_state_watchers.state.checkpoint_store import CheckpointStore, key_of
from airflow_state_watchers.triggers.large import LargeBatches
from airflow_state_watchers.triggers.objects import ObjectLook, ObjectReading
from airflow_state_watchers.triggers.progress import Interrupted, Progress
from airflow_state_watchers.triggers.settings import Settings
from tests.core.crash_laws import Event, Laws, Look
from tests.core.items import NOON, item

NAME = "memory"
ROOT, MARKER = key_of("", NAME), key_of("marker", NAME)
FRONTIER_INTERVAL = timedelta(seconds=20)

Answer = Literal["do", "refuse", "do and fail"]
"""What becomes of an operation on the store: it works; it does not; it works and its answer is lost."""
Stop = Literal["store", "root", "page", "delivered", "full"]
"""Where a process stands: before an operation on the store, before it writes the root, before a page of the listing, after
a delivery; ``full``: until something in flight is committed."""


class Killed(BaseException):
    """Ends a process wherever it stands. (Closing a coroutine would leave the generators that it reads half closed.)"""


@types.coroutine
def stop(where: Stop) -> Generator[Stop, Answer, Answer]:
    return (yield where)


async def show_a_page() -> None:
    """Stand before a page of the listing, which may fail to come."""
    if await stop("page") != "do":
        raise ConnectionError


def segment_key(name: str) -> str:
    return key_of("uploads" if "-u" in name else "ledger", f"{name}:{NAME}")


def named(root: dict[str, Any]) -> set[str]:
    """The keys of all segments that a root names."""
    return {segment_key(name) for name in (*root["segments"], *root["uploads"])}


class World:
    """Everything outside the processes. ``now`` moves in half seconds; the source's clock shows whole ones."""

    def __init__(self, laws: Laws, *, limit: int, **settings: Any) -> None:
        self.laws, self.limit = laws, limit
        self.now = NOON
        self.listing: dict[str, Item] = {}
        self.uploads: list[Upload] = []
        self.forgiven: set[str] = set()
        """Segments that nobody can know of if their process is killed before it writes the root that names them."""
        self.state: dict[str, str] = {}
        self.active = True
        self.written = ""
        self.source = Source(self)
        self.settings = Settings(
            name=NAME,
            kind="memory",
            source=self.source,
            settle=laws.settle,
            lookback=laws.lookback,
            poll_interval=60,
            **settings,
        )
        self.polls = count()
        self._etags = count()

    @property
    def source_now(self) -> datetime:
        return self.now.replace(microsecond=0)

    def put(self, key: str, age: int) -> None:
        """Show a new version of a key, last modified ``age`` seconds ago."""
        stamp = (self.source_now - NOON).total_seconds() - age
        self.listing[key] = new = item(stamp, key, etag=str(next(self._etags)))
        self.laws.shown(new, self.now)

    def begin_upload(self, key: str) -> None:
        upload = Upload(key, upload_id(str(next(self._etags))), self.source_now)
        self.uploads.append(upload)
        self.laws.begun(upload)

    def complete(self, upload: Upload) -> None:
        """What an upload made is listed with the time at which it began."""
        self.uploads.remove(upload)
        stamp = (upload.initiated - NOON).total_seconds()
        self.listing[upload.key] = new = item(stamp, upload.key, etag=str(next(self._etags)))
        self.laws.shown(new, self.now, by=upload)

    def stored_segments(self) -> set[str]:
        return {key for key in self.state if key not in (ROOT, MARKER)}

    def root(self) -> dict[str, Any] | None:
        return json.loads(self.state[ROOT]) if ROOT in self.state else None

    def write(self, process: Process, key: str, text: str) -> None:
        if key == ROOT:
            self._write_root(process, text)
            return
        root = self.root()
        if root and key in named(root) and not self.laws.torn:
            assert self.state.get(key) in (None, text), "a segment that the root names has changed"
        if "uploads" in key or not process.has_written:
            self.forgiven.add(key)
        self.state[key] = text

    def delete(self, key: str) -> None:
        root = self.root()
        if root and not self.laws.torn:
            assert key not in named(root), "a segment that the root names is deleted"
        self.state.pop(key, None)

    def _write_root(self, process: Process, text: str) -> None:
        assert process.has_looked, "a root is written without a look at what stands there"
        if self.state.get(ROOT) != process.saw:
            self.laws.overwritten()
        root = json.loads(text)
        lineage = (root["origin"], root["generation"])
        if process.begins or lineage not in self.laws.lives:
            self.laws.begins(lineage, load_position(root["watermark"], "watermark"), process.look, moved=process.moves)
        process.means(lineage)
        process.has_written = True
        self.forgiven -= named(root)
        self.state[ROOT] = self.written = process.saw = text
        stored = {name: self.state.get(segment_key(name)) for name in root["segments"]}
        if not all(segment_key(name) in self.state for name in root["uploads"]):
            self.laws.uploads_forgotten()
        self.laws.stored(root, {name: json.loads(text) for name, text in stored.items() if text})


class Source:
    def __init__(self, world: World) -> None:
        self._world = world

    def fields(self) -> dict[str, Any]:
        return {"kind": "memory"}

    async def open(self) -> Scan:
        await show_a_page()
        return Scan(self._world)

    async def aclose(self) -> None: ...


class Scan:
    """A listing in two pages, each as things are when it is asked for."""

    def __init__(self, world: World) -> None:
        self.now = world.source_now
        self.listed = 0
        self.uploads: Sequence[Upload] | None = list(world.uploads)
        self.note: str | None = None
        self.advice: str | None = None
        self.cursor: str | None = None
        self.beginner: Process | None = None
        self._world, self._opened = world, world.laws.order

    async def pages(
        self,
        low: datetime | None,
        high: datetime,
        *,
        also: Collection[str] = (),
        after: str | None = None,
        skip: Skip | None = None,
        whole: bool = False,
    ) -> AsyncGenerator[Sequence[Item], None]:
        shown: dict[bytes, Item] = {}
        for first in (False, True):
            listing = [item for key, item in self._world.listing.items() if (key < "c") is first]
            wanted = [
                item
                for item in listing
                if (low is None or item.position.value >= low or item.position.tiebreak in also)
                and item.position.value < high
            ]
            self.listed += len(listing)
            shown.update((item.identity, item) for item in wanted)
            yield wanted
            await show_a_page()
        if self.beginner is not None:
            self.beginner.look = Look(self._opened, shown)


class Line:
    """One process's connection to the asset's state. Values pass through JSON."""

    def __init__(self, process: Process) -> None:
        self._process, self._world = process, process.world

    async def aget(self, key: str, default: Any = None) -> Any:
        if await stop("store") != "do":
            raise ConnectionError
        text = self._world.state.get(key) if self._world.active else None
        if key == ROOT:
            self._process.saw, self._process.has_looked = text, True
        return default if text is None else json.loads(text)

    async def aset(self, key: str, value: Any) -> None:
        answer = await self._taken("root" if key == ROOT else "store")
        with self._process.judged():
            self._world.write(self._process, key, json.dumps(value))
        if answer == "do and fail":
            raise ConnectionError

    async def adelete(self, key: str) -> None:
        answer = await self._taken("store")
        with self._process.judged():
            self._world.delete(key)
        if answer == "do and fail":
            raise ConnectionError

    async def _taken(self, where: Stop) -> Answer:
        answer = await stop(where)
        if answer == "refuse" or not self._world.active:
            raise ConnectionError
        return answer


@dataclass
class Flight:
    """One delivery on its way."""

    batch: Batch
    event: Event
    persisted: bool = False
    confirmed: bool = False


class Process:
    """One life of the watcher in a triggerer."""

    def __init__(self, world: World, by: str) -> None:
        self.world, self.by = world, by
        self.store = CheckpointStore(Line(self), NAME, by=by)
        self.progress = Progress(world.settings, self.store, ObjectReading(world.settings), asset="orders", owners={})
        self.in_flight: list[Flight] = []
        self.look: Look | None = None
        self.saw: str | None = None
        self.has_looked = self.has_written = False
        self.again = self.begins = self.moves = False
        self._broken: AssertionError | None = None
        self._known: Checkpoint | None = None
        self._epoch = 0
        self._sequence = count()
        self._intends: Batch | None = None
        self._commits: Sequence[Item] = ()
        self._polling: Coroutine[Stop, Answer, None] | None = None
        self._committing: Coroutine[Stop, Answer, None] | None = None
        self._at: Stop | None = None
        self._commits_at: Stop | None = None
        self._changed = True

    # What may be done to it.

    @property
    def is_storing(self) -> bool:
        """Whether it stands between two operations that belong together."""
        return self._committing is not None or self._at in ("store", "root")

    @property
    def is_idle(self) -> bool:
        return self._polling is None and self._committing is None and not self.in_flight

    def run(self, steps: int, *, confirm: bool, answer: Answer = "do") -> None:
        """Begin a poll if it rests; go on for so many steps or until it waits. ``answer`` meets the last of the steps."""
        if self.is_idle:
            self._polling = self._poll()
        for left in reversed(range(steps)):
            if confirm:
                self.persist(len(self.in_flight), confirm=True)
            if not self._step("do" if left else answer):
                return

    def run_to_a_root(self) -> None:
        """Go on, confirming what is delivered, until a root is about to be written, or until there is nothing to do."""
        for _ in range(100):
            self.run(1, confirm=True)
            if "root" in (self._at, self._commits_at) or self.is_idle:
                return

    def persist(self, number: int, *, confirm: bool) -> None:
        """The first deliveries in flight reach Airflow's database, and the process may hear of it."""
        for flight in self.in_flight[:number]:
            self._reach(flight)
            flight.confirmed = flight.confirmed or confirm

    def fail(self, *, persisted: bool, others: bool) -> None:
        """The first delivery in flight is not confirmed in time, whether it and the others reached the database or not."""
        first, rest = self.in_flight[:1], self.in_flight[1:]
        if rest and others and not persisted:
            self.world.laws.gap = True
        for flight in (first if persisted else []) + (rest if others else []):
            self._reach(flight)
        self._interrupt()

    def kill(self) -> None:
        for running in (self._polling, self._committing):
            if running is not None and inspect.getcoroutinestate(running) == inspect.CORO_SUSPENDED:
                with suppress(Killed):
                    running.throw(Killed())
            elif running is not None:
                running.close()

    def means(self, lineage: tuple[str, int]) -> None:
        """Say what the root that is about to be written is for."""
        if self._intends is not None:
            self.world.laws.intends(lineage, self._intends)
        if self._commits:
            self.world.laws.commits(lineage, self._commits)

    # What it does.

    def _step(self, answer: Answer) -> bool:
        with self.world.laws.noted():
            return self._go_on(answer)

    def _go_on(self, answer: Answer) -> bool:
        if not self.is_storing and self._confirmed():
            self._committing = self._commit()
        if self._committing is not None:
            self._commits_at = _send(self._committing, answer)
            if self._commits_at is None:
                self._committing, self.has_looked = None, False
        elif self._polling is not None and (self._changed or self._at != "full"):
            self._changed = False
            self._at = _send(self._polling, answer)
            if self._at is None:
                self._polling = None
            if not self.is_storing:
                self.has_looked = False
        else:
            return False
        if self._broken is not None:
            raise self._broken
        self._remember()
        return True

    def _remember(self) -> None:
        """Check that what this process goes by never moves back, whoever else has written."""
        now = self.progress.checkpoint
        if now is not None:
            before, self._known = self._known, now
            if before is not None and before.generation == now.generation and before.origin == now.origin:
                assert later(before.watermark, now.watermark) == now.watermark, "a process has gone back"

    @contextmanager
    def judged(self) -> Iterator[None]:
        """Keep a broken law from being taken for a store that does not answer."""
        try:
            yield
        except AssertionError as broken:
            self._broken = broken
            raise

    def _reach(self, flight: Flight) -> None:
        if not flight.persisted:
            flight.persisted = True
            with self.world.laws.noted():
                self.world.laws.persisted(flight.event)

    def _confirmed(self) -> list[Flight]:
        return list(takewhile(lambda flight: flight.confirmed, self.in_flight))

    def _interrupt(self) -> None:
        self._epoch += 1
        self.in_flight.clear()
        self._changed = True

    async def _poll(self) -> None:
        self.again = False
        try:
            await self._cycle()
        except Interrupted:
            self._interrupt()
            self.again = True
        except (CheckpointError, ConnectionError):
            self.again = True

    async def _cycle(self) -> None:
        world, poll = self.world, next(self.world.polls)
        await self._all_committed()  # an earlier poll may have failed with deliveries on their way
        checkpoint = await self.progress.current(world.now)
        scan = await world.source.open()
        if checkpoint is None:
            await self._begin(scan)
            return
        look = ObjectLook(scan, world.settings, LargeBatches(world.settings), most=world.limit)
        read = await self.progress.read(look)
        if not read.batches:
            await self.progress.scanned(read.upto, world.now, every=FRONTIER_INTERVAL)
        epoch = self._epoch
        for batch in read.batches:
            while len(self.in_flight) >= world.settings.max_in_flight:
                await stop("full")
            if self._epoch != epoch:
                return
            await self._deliver(batch, poll, scan)
            await stop("delivered")
        await self._all_committed()
        self.again = self._epoch != epoch or not read.complete

    async def _begin(self, scan: Scan) -> None:
        scan.beginner, self.begins = self, True
        beginning = self.progress._beginning
        self.moves = beginning is not None and beginning.verdict is Verdict.MOVED
        try:
            await self.progress.begin(
                ObjectLook(scan, self.world.settings, LargeBatches(self.world.settings)), self.world.now
            )
        finally:
            self.begins = False
        self.again = True

    async def _all_committed(self) -> None:
        while self.in_flight:
            await stop("full")

    async def _deliver(self, batch: Batch, poll: int, scan: Scan) -> None:
        self._intends = batch
        try:
            checkpoint = await self.progress.intend(batch, self.world.now)
        finally:
            self._intends = None
        number = next(self._sequence)
        payload = event_of(batch, checkpoint, kind="memory", trigger_run_id=self.by, sequence_index=number, source={})
        event = Event(
            (checkpoint.origin, payload["generation"]),
            poll,
            payload["batch_id"],
            payload["previous"],
            tuple(payload.get("replaces", ())),
            batch.items,
        )
        horizon = scan.now - self.world.settings.settle
        self.world.laws.delivered(event, horizon, [flight.event for flight in self.in_flight])
        self.in_flight.append(Flight(batch, event))

    async def _commit(self) -> None:
        clean, epoch = self._confirmed(), self._epoch
        self._commits = [item for flight in clean for item in flight.batch.items]
        try:
            batches = [flight.batch for flight in clean]
            await self.progress.commit(batches, self.world.now, valid=lambda: self._epoch == epoch)
        except Interrupted:
            if self._epoch == epoch:
                self._interrupt()
        except (CheckpointError, ConnectionError):
            return
        else:
            del self.in_flight[: len(clean)]
            self._changed = True
        finally:
            self._commits = ()


def _send(running: Coroutine[Stop, Answer, None], answer: Answer) -> Stop | None:
    """Let a coroutine go on to its next stop; ``None`` if it has ended."""
    fresh = inspect.getcoroutinestate(running) == inspect.CORO_CREATED
    try:
        return running.send(None if fresh else answer)  # type: ignore[arg-type]
    except StopIteration:
        return None
