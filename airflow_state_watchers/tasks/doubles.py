"""Airflow as an inbox sees it, in memory. Public through :mod:`airflow_state_watchers.testing`."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Protocol

from airflow.sdk.exceptions import AirflowSkipException

from airflow_state_watchers.core.takes import Holder
from airflow_state_watchers.tasks.events import payload_of
from airflow_state_watchers.tasks.manifests import ReadManifest, read_from_s3
from airflow_state_watchers.tasks.surroundings import Opener, RawEvent, Surroundings, doubles


class KeyValues(Protocol):
    """The synchronous side of :class:`airflow_state_watchers.testing.InMemoryStore`."""

    def get(self, key: str, default: Any = None) -> Any: ...

    def set(self, key: str, value: Any) -> None: ...


class _Memory:
    def __init__(self) -> None:
        self.data: dict[str, str] = {}

    def get(self, key: str, default: Any = None) -> Any:
        return json.loads(self.data[key]) if key in self.data else default

    def set(self, key: str, value: Any) -> None:
        self.data[key] = json.dumps(value)


@dataclass(slots=True)
class _Run:
    """A DAG run: how many events there were before it came, and how many it was triggered by or came before those."""

    first: int
    last: int
    finished: bool = False


@dataclass(slots=True)
class _TaskInstance:
    state: str | None = None
    try_number: int = 0
    max_tries: int = 0


@dataclass
class InMemoryAirflow:
    """One asset's events and state, the runs of one DAG, and the XComs beside them.

    ``store`` holds the asset's state; ``now`` is the clock that stamps events. :meth:`deliver` adds an event, :meth:`task`
    runs a task. A run is triggered by the events that no run was triggered by before.
    """

    asset: str = "test"
    store: KeyValues = field(default_factory=_Memory)
    now: Callable[[], datetime] | None = None
    dag_id: str = "dag"
    task_id: str = "task"
    retries: int = 0
    max_active_runs: int = 1
    max_map_length: int = 1024
    mapped_over: bool = True
    task_ids: frozenset[str] | None = None
    read_manifest: ReadManifest = read_from_s3
    counted: dict[str, int] = field(default_factory=dict)
    events: list[RawEvent] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)
    xcoms: dict[tuple[str, Holder], str] = field(default_factory=dict)
    _runs: dict[str, _Run] = field(default_factory=dict)
    _instances: dict[Holder, _TaskInstance] = field(default_factory=dict)
    _ticks: int = 0
    _last_id: int = 0

    def deliver(
        self, payload: Mapping[str, Any] | None, *, at: datetime | None = None, event_id: int | None = None
    ) -> int:
        """Add an event to the asset and return its id."""
        event_id = self._last_id + 1 if event_id is None else event_id
        self._last_id = max(event_id, self._last_id)
        plain = None if payload is None else payload_of({"payload": json.loads(json.dumps(payload))})
        self.events.append(RawEvent(event_id, at or self._clock(), plain))
        return event_id

    def _clock(self) -> datetime:
        if self.now is not None:
            return self.now()
        self._ticks += 1
        return datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=self._ticks)

    @contextmanager
    def task(
        self,
        run_id: str = "r1",
        try_number: int = 1,
        *,
        task_id: str | None = None,
        map_index: int = -1,
        triggered: bool = True,
    ) -> Iterator[None]:
        """Be a running task: inside, ``Inbox(asset)`` reads the events delivered so far.

        It succeeds, fails or is skipped as the block does. The same run again is a retry if the task failed before, and a
        clear if it succeeded. With ``triggered=False`` no event has triggered a new run.
        """
        holder = Holder(self.dag_id, run_id, task_id or self.task_id, map_index)
        self.create_run(run_id, triggered=triggered)
        instance = self._start(holder, try_number)
        place = self._surroundings(holder, instance)
        token = doubles.set({**doubles.get({}), self.asset: lambda: place})
        try:
            yield
        except AirflowSkipException:
            instance.state = "skipped"
            raise
        except BaseException:
            instance.state = "failed"
            raise
        else:
            instance.state = "success"
        finally:
            doubles.reset(token)

    def set_state(self, run_id: str, state: str | None, *, task_id: str | None = None, map_index: int = -1) -> None:
        """Say what became of a task instance."""
        holder = Holder(self.dag_id, run_id, task_id or self.task_id, map_index)
        self._instances.setdefault(holder, _TaskInstance()).state = state

    def clear(self, run_id: str, *, task_id: str | None = None, map_index: int = -1) -> None:
        """Clear a task instance, as a person does in Airflow."""
        holder = Holder(self.dag_id, run_id, task_id or self.task_id, map_index)
        instance = self._instances[holder]
        instance.state = None
        instance.max_tries = instance.try_number + self.retries
        self._runs[run_id].finished = False

    def finish(self, run_id: str) -> None:
        """The run is over: nothing of it starts any more."""
        self._runs[run_id].finished = True

    def delete(self, run_id: str) -> None:
        """Delete a run with all that lies beside it."""
        del self._runs[run_id]
        self._instances = {holder: found for holder, found in self._instances.items() if holder.run_id != run_id}
        self.xcoms = {place: value for place, value in self.xcoms.items() if place[1].run_id != run_id}

    def create_run(self, run_id: str, *, triggered: bool = True) -> None:
        """Let a run come: it is triggered by the events that no run was triggered by before, or by none."""
        bound = max((run.last for run in self._runs.values()), default=0)
        self._runs.setdefault(run_id, _Run(bound, len(self.events) if triggered else bound))

    def _start(self, holder: Holder, try_number: int) -> _TaskInstance:
        instance = self._instances.setdefault(holder, _TaskInstance(max_tries=self.retries))
        if instance.state in ("success", "skipped"):
            self.clear(holder.run_id, task_id=holder.task_id, map_index=holder.map_index)
        instance.state, instance.try_number = "running", max(try_number, instance.try_number + 1)
        for place in [place for place in self.xcoms if place[1] == holder]:
            del self.xcoms[place]
        return instance

    def _surroundings(self, holder: Holder, instance: _TaskInstance) -> Surroundings:
        run = self._runs[holder.run_id]
        triggers = [
            (event.time, event.payload["batch_id"]) for event in self.events[run.first : run.last] if event.payload
        ]
        opener = Opener(holder, instance.max_tries, self.retries, self.max_active_runs, tuple(triggers))
        return Surroundings(
            identity=object(),
            asset=self.asset,
            opener=opener,
            log=self,
            state=self,
            copies=self,
            tasks=self,
            now=self.now or (lambda: max((event.time for event in self.events), default=self._clock())),
            count=self._count,
            max_map_length=self.max_map_length,
            mapped_over=self.mapped_over,
            task_ids=self.task_ids,
            read_manifest=self.read_manifest,
        )

    def _count(self, name: str, number: int) -> None:
        self.counted[name] = self.counted.get(name, 0) + number

    # What an inbox asks for: see the protocols in ``surroundings``.

    def page(
        self, *, after: datetime | None, before: datetime | None, limit: int, ascending: bool = True
    ) -> Sequence[RawEvent]:
        found = [e for e in self.events if (after is None or e.time >= after) and (before is None or e.time <= before)]
        found.sort(key=lambda event: event.time, reverse=not ascending)
        self.pages.append(len(found[:limit]))
        return found[:limit]

    def load(self, key: str) -> Any:
        return self.store.get(key)

    def save(self, key: str, value: Any) -> bool:
        try:
            self.store.set(key, value)
        except LookupError:
            return False
        return True

    def find(self, key: str) -> Iterable[Any]:
        return [json.loads(value) for (kept, _), value in self.xcoms.items() if kept == key]

    def keep(self, key: str, holder: Holder, value: Any) -> bool:
        if holder not in self._instances:
            return False
        self.xcoms[key, holder] = json.dumps(value)
        return True

    def drop(self, key: str, holder: Holder) -> None:
        self.xcoms.pop((key, holder), None)

    def states(self, dag_id: str, task_id: str, run_ids: Collection[str]) -> Mapping[str, Mapping[int, str | None]]:
        found: dict[str, dict[int, str | None]] = {}
        for holder, instance in self._instances.items():
            if (holder.dag_id, holder.task_id) == (dag_id, task_id) and holder.run_id in run_ids:
                found.setdefault(holder.run_id, {})[holder.map_index] = instance.state
        return found

    def run_finished(self, dag_id: str, run_id: str) -> bool:
        return self._runs[run_id].finished
