"""What an inbox needs of the task that opens it, each part as narrow as it can be.

:mod:`~airflow_state_watchers.tasks.airflow_task` provides them inside a running task,
:mod:`~airflow_state_watchers.tasks.doubles` in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Union

from airflow_state_watchers.core.takes import Holder
from airflow_state_watchers.tasks.manifests import ReadManifest, read_from_s3

if TYPE_CHECKING:
    from airflow.sdk import Asset
    from airflow.sdk.definitions.asset import AssetRef

    AnyAsset: TypeAlias = Union[Asset, AssetRef]  # noqa: UP007  `|` of the two is not evaluated in an alias on 3.10


@dataclass(frozen=True, slots=True)
class RawEvent:
    """An event of the asset: the payload is ``None`` if no watcher of this package sent it."""

    id: int
    time: datetime
    payload: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Opener:
    """The task instance that opens an inbox.

    ``max_tries`` grows when the task is cleared, ``retries`` is what its DAG says; ``triggered_by`` are the times and batch
    ids of the watcher's events of this asset that triggered its run.
    """

    holder: Holder
    max_tries: int
    retries: int
    max_active_runs: int
    triggered_by: tuple[tuple[datetime, str], ...] = ()


class EventLog(Protocol):
    """The asset's events in Airflow's database."""

    def page(
        self, *, after: datetime | None, before: datetime | None, limit: int, ascending: bool = True
    ) -> Sequence[RawEvent]:
        """Return up to ``limit`` events, both bounds included, ordered by time only."""


class StateStore(Protocol):
    """The asset's state. Airflow deletes it when no DAG names the asset any more."""

    def load(self, key: str) -> Any:
        """Return the value, or ``None``."""

    def save(self, key: str, value: Any) -> bool:
        """Write. Returns whether the asset is active; nothing is stored for one that is not."""


class CopyStore(Protocol):
    """A place outside the asset's state, beside task instances of this task."""

    def find(self, key: str) -> Iterable[Any]:
        """Return the values kept beside any run of this task."""

    def keep(self, key: str, holder: Holder, value: Any) -> bool:
        """Write beside ``holder``. Returns whether that worked: its run may be gone."""

    def drop(self, key: str, holder: Holder) -> None:
        """Delete what is kept beside ``holder``, if anything."""


class TaskStates(Protocol):
    """What Airflow says about task instances."""

    def states(self, dag_id: str, task_id: str, run_ids: Collection[str]) -> Mapping[str, Mapping[int, str | None]]:
        """Return states by run and map index (-1: not mapped); a task instance that is gone is missing."""

    def run_finished(self, dag_id: str, run_id: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The whole. ``identity`` is the same object for as long as the same try runs; ``mapped_over``: whether a task is mapped
    over what this one returns, as far as can be known."""

    identity: object
    asset: str
    opener: Opener
    log: EventLog
    state: StateStore
    copies: CopyStore
    tasks: TaskStates
    now: Callable[[], datetime]
    count: Callable[[str, int], None]
    max_map_length: int = 1024
    mapped_over: bool = True
    task_ids: frozenset[str] | None = None
    read_manifest: ReadManifest = read_from_s3


doubles: ContextVar[Mapping[str, Callable[[], Surroundings]]] = ContextVar("inbox_doubles")
"""By asset name: what stands in for Airflow while a test has put it there."""


def manifest_reader_of(asset: str) -> ReadManifest:
    """Return how manifests of an asset's events are read, also outside an inbox."""
    stand_in = doubles.get({}).get(asset)
    return stand_in().read_manifest if stand_in else read_from_s3


def surroundings_of(asset: AnyAsset) -> Surroundings:
    """Return the surroundings of the running task, or of the test that stands in for one."""
    stand_ins = doubles.get({})
    if not stand_ins:
        from airflow_state_watchers.tasks.airflow_task import surroundings_in_task

        return surroundings_in_task(asset)
    name = getattr(asset, "name", None) or next(iter(stand_ins))
    if name not in stand_ins:
        raise LookupError(f"this test gives events of {', '.join(sorted(stand_ins))}, not of asset {name!r}")
    return stand_ins[name]()
