"""The surroundings of an inbox inside a running task."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, get_current_context
from airflow.sdk.configuration import conf
from airflow.sdk.definitions.asset import AssetNameRef, AssetUriRef
from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time.context import AssetStateStoreAccessor, InletEventsAccessor
from airflow.sdk.execution_time.xcom import XCom
from airflow.sdk.observability import stats

from airflow_state_watchers.core.takes import Holder
from airflow_state_watchers.tasks.events import payload_of
from airflow_state_watchers.tasks.refusal import InboxRefusal
from airflow_state_watchers.tasks.surroundings import Opener, RawEvent, Surroundings

if TYPE_CHECKING:
    from airflow_state_watchers.tasks.surroundings import AnyAsset

log = logging.getLogger(__name__)

_NOT_FOUND = 404
_RUNS_PER_QUESTION = 50
_FINISHED = {"success", "failed"}


def surroundings_in_task(asset: AnyAsset) -> Surroundings:
    """Read the current task's context. Raises if there is none, or if the asset is not among the task's inlets."""
    try:
        context = get_current_context()
    except RuntimeError:
        raise InboxRefusal(
            f"{_written(asset)} can be opened only while a task runs, not while its DAG is parsed."
        ) from None
    ti, dag = context["ti"], context["dag"]
    inlet = _inlet(asset, context.get("inlets") or (), f"{ti.dag_id}.{ti.task_id}")
    events = context["inlet_events"][inlet]
    map_index = -1 if ti.map_index is None else ti.map_index
    opener = Opener(
        holder=Holder(ti.dag_id, ti.run_id, ti.task_id, map_index),
        max_tries=ti.max_tries,
        retries=getattr(ti.task, "retries", None) or 0,
        max_active_runs=dag.max_active_runs,
        triggered_by=tuple(_triggered_by(context["dag_run"].consumed_asset_events, inlet)),
    )
    return Surroundings(
        identity=ti,
        asset=str(getattr(inlet, "name", None) or getattr(inlet, "uri", "")),
        opener=opener,
        log=_Events(events),
        state=_State(_accessor(inlet)),
        copies=_Copies(opener.holder),
        tasks=_Tasks(ti),
        now=lambda: datetime.now(timezone.utc),
        count=lambda name, number: stats.incr(name, number),
        max_map_length=conf.getint("core", "max_map_length"),
        mapped_over=next(iter(ti.task.iter_mapped_dependants()), None) is not None,
        task_ids=frozenset(dag.task_dict),
    )


def _written(asset: Any) -> str:
    name = getattr(asset, "name", "")
    return f"Inbox({name if name.isidentifier() else 'asset'})"


def _inlet(asset: AnyAsset, inlets: Iterable[Any], task: str) -> Any:
    """Return the task's inlet that means ``asset``, which may be named by a reference on either side."""
    for inlet in inlets:
        if isinstance(inlet, (Asset, AssetNameRef, AssetUriRef)) and _same_asset(inlet, asset):
            return inlet
    name = getattr(asset, "name", None) or getattr(asset, "uri", None)
    variable = name if name and name.isidentifier() else "asset"
    raise InboxRefusal(
        f"task {task} does not list asset {name!r} in its inlets, so Airflow hides its events from it. "
        f"Write @task(inlets=[{variable}])."
    )


def _same_asset(inlet: Any, asset: Any) -> bool:
    """Compare what both of them say: a reference knows a name or a URI only."""
    known = [attribute for attribute in ("name", "uri") if hasattr(inlet, attribute) and hasattr(asset, attribute)]
    return bool(known) and all(getattr(inlet, attribute) == getattr(asset, attribute) for attribute in known)


def _accessor(inlet: Any) -> AssetStateStoreAccessor:
    if isinstance(inlet, AssetUriRef):
        return AssetStateStoreAccessor(uri=inlet.uri)
    return AssetStateStoreAccessor(name=inlet.name)


def _triggered_by(events: Iterable[Any], inlet: Any) -> Iterable[tuple[datetime, str]]:
    for event in events:
        names = (getattr(inlet, "name", event.asset.name), getattr(inlet, "uri", event.asset.uri))
        payload = payload_of(event.extra) if names == (event.asset.name, event.asset.uri) else None
        if payload is not None:
            yield event.timestamp, payload["batch_id"]


class _Events:
    def __init__(self, events: InletEventsAccessor) -> None:
        self._events = events

    def page(
        self, *, after: datetime | None, before: datetime | None, limit: int, ascending: bool = True
    ) -> Sequence[RawEvent]:
        events: Any = self._events
        events.after(after).before(before).ascending(ascending).limit(limit)
        found = [RawEvent(event.id, event.timestamp, payload_of(event.extra)) for event in events]
        events.limit(limit)  # drops the accessor's own copy of the page
        return found


class _State:
    def __init__(self, accessor: AssetStateStoreAccessor) -> None:
        self._accessor = accessor

    def load(self, key: str) -> Any:
        return self._accessor.get(key)

    def save(self, key: str, value: Any) -> bool:
        try:
            self._accessor.set(key, value)
        except AirflowRuntimeError as error:
            if _status(error) != _NOT_FOUND:
                raise
            return False
        return True


def _status(error: AirflowRuntimeError) -> int | None:
    detail = error.error.detail
    status = detail.get("status_code") if isinstance(detail, Mapping) else None
    return status if isinstance(status, int) else None


class _Copies:
    """Copies in the XComs of this task. Airflow deletes them when that task instance begins a new try, and with its run."""

    def __init__(self, opener: Holder) -> None:
        self._opener = opener

    def find(self, key: str) -> Iterable[Any]:
        mine = self._opener
        found = XCom.get_all(
            key=key, dag_id=mine.dag_id, task_id=mine.task_id, run_id=mine.run_id, include_prior_dates=True
        )
        return found or ()

    def keep(self, key: str, holder: Holder, value: Any) -> bool:
        try:
            XCom.set(key, value, **_where(holder))
        except AirflowRuntimeError as error:
            log.warning("the second copy of bookmark %s cannot be kept beside run %s: %s", key, holder.run_id, error)
            return False
        return True

    def drop(self, key: str, holder: Holder) -> None:
        try:
            XCom.delete(key, **_where(holder))
        except AirflowRuntimeError as error:
            log.debug("an old copy of bookmark %s cannot be deleted: %s", key, error)


def _where(holder: Holder) -> dict[str, Any]:
    return {
        "dag_id": holder.dag_id,
        "task_id": holder.task_id,
        "run_id": holder.run_id,
        "map_index": holder.map_index,
    }


class _Tasks:
    def __init__(self, ti: Any) -> None:
        self._ti = ti

    def states(self, dag_id: str, task_id: str, run_ids: Collection[str]) -> Mapping[str, Mapping[int, str | None]]:
        runs = sorted(run_ids)
        states: dict[str, dict[int, str | None]] = {}
        for start in range(0, len(runs), _RUNS_PER_QUESTION):
            some = runs[start : start + _RUNS_PER_QUESTION]
            answer = self._ti.get_task_states(dag_id=dag_id, task_ids=[task_id], run_ids=some)
            states |= {run_id: _by_map_index(task_id, found) for run_id, found in answer.items()}
        return states

    def run_finished(self, dag_id: str, run_id: str) -> bool:
        return _text(self._ti.get_dagrun_state(dag_id=dag_id, run_id=run_id)) in _FINISHED


def _by_map_index(task_id: str, found: Mapping[str, Any]) -> dict[int, str | None]:
    """Airflow names a mapped task instance ``copy_3``, one that is not mapped ``copy``; only one task was asked for."""
    prefix = f"{task_id}_"
    return {
        (-1 if name == task_id else int(name[len(prefix) :])): None if state is None else _text(state)
        for name, state in found.items()
    }


def _text(state: Any) -> str:
    return str(getattr(state, "value", state))
