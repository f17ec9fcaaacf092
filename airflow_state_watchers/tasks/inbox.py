"""The inbox: every item of an asset that this consumer has not finished."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, get_args

from airflow.sdk.exceptions import AirflowSkipException

from airflow_state_watchers.core.takes import Copies
from airflow_state_watchers.tasks.events import WatcherEvent, watcher_event
from airflow_state_watchers.tasks.kinds import Kind, Reader, kind_of
from airflow_state_watchers.tasks.objects import S3Object
from airflow_state_watchers.tasks.refusal import InboxRefusal
from airflow_state_watchers.tasks.rules import OnGap, Rules, Start
from airflow_state_watchers.tasks.session import Session
from airflow_state_watchers.tasks.surroundings import Surroundings, surroundings_of
from airflow_state_watchers.tasks.windows import SqlWindow

if TYPE_CHECKING:
    from airflow_state_watchers.tasks.surroundings import AnyAsset

log = logging.getLogger(__name__)


class Inbox:
    """Every item of an asset that this consumer has not finished, in order, repeats dropped.

    Use it in a task that lists the asset among its inlets::

        @task(inlets=[orders])
        def load():
            with Inbox(orders) as inbox:
                for obj in inbox.objects():
                    ...

    An item is done when the task that took it has succeeded, or when :meth:`commit` was called after it was handed out.
    What was taken and not handed out is not done. A retry gets the same again. What a task took that then fails for good,
    or is skipped, the next run takes over.

    :param asset: the asset, or ``Asset.ref(...)``.
    :param consumer: the name under which the place is kept. By default ``dag_id/task_id``, so a renamed DAG or task is a
        new consumer; a name of your own keeps the place.
    :param start: where a new consumer begins: with the events that triggered its run (``"latest"``) or with everything.
    :param skip_if_empty: skip the task if it has nothing to do.
    :param allow_overlap: let a DAG run several times at once, although two runs may then take the same items.
    :param on_gap: what to do when events are missing, cleaned from the database say: ``"raise"``, or ``"skip"`` them.
    """

    def __init__(
        self,
        asset: AnyAsset,
        *,
        consumer: str | None = None,
        start: Start = "latest",
        skip_if_empty: bool = True,
        allow_overlap: bool = False,
        on_gap: OnGap = "raise",
    ) -> None:
        if not (getattr(asset, "name", None) or getattr(asset, "uri", None)):
            raise InboxRefusal(f"Inbox() reads one asset. Give it an Asset or Asset.ref(...), not {asset!r}.")
        _check_one_of("start", start, get_args(Start))
        _check_one_of("on_gap", on_gap, get_args(OnGap))
        if consumer == "":
            raise InboxRefusal("consumer='' names nobody. Leave it out for 'dag_id/task_id'.")
        self._asset = asset
        self._consumer = consumer
        self._start: Start = start
        self._on_gap: OnGap = on_gap
        self._skip_if_empty = skip_if_empty
        self._allow_overlap = allow_overlap
        self._session: Session | None = None

    def __enter__(self) -> Inbox:
        """Read what there is and take it. Raises ``AirflowSkipException`` if that is nothing."""
        self._session = self._open(surroundings_of(self._asset), inside=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Store how far the items were handed out. Commits nothing: they are done when the task succeeds."""
        assert self._session is not None
        session, self._session = self._session, None
        if error is None:
            session.leave(ended=True)
            return
        try:
            session.leave(ended=False)
        except Exception:
            log.warning("how far the inbox was read could not be stored; all of it comes again", exc_info=True)

    def objects(self) -> Iterator[S3Object]:
        """Yield the objects that are not done, in order. Raises if the asset has events of another kind."""
        return self._handed_out("objects")

    def windows(self) -> Iterator[SqlWindow]:
        """Yield the windows that are not done, in order: one for each event of a SQL watcher, also of one with
        ``payload="rows"``. Raises if the asset has events of another kind.
        """
        return self._handed_out("windows")

    def _handed_out(self, reader: Reader) -> Iterator[Any]:
        session, ended = self._opened(), False
        try:
            yield from _units(session, reader)
            ended = True
        finally:
            session.pause(ended=ended)

    def events(self) -> Iterator[WatcherEvent]:
        """Yield the events that are not done, of any kind, each with only those of its items that are not done."""
        session, ended = self._opened(), False
        last = session.last_slots()
        try:
            for slot, numbers, payload in session.parts():
                units = kind_of(payload).units(payload, is_last=slot.start in last)
                positions = list(slot.positions)
                left = [units[positions[number - slot.start]] for number in numbers]
                session.reached(slot.stop)
                yield watcher_event(session.asset, payload, left)
            ended = True
        finally:
            session.pause(ended=ended)

    def take(self, *, group: int | None = None, done_by: str | None = None) -> list[Any]:
        """Return all objects and windows that are not done, as a list for XCom, ``.expand()`` and templates.

        :param group: make it a list of lists of up to so many items, to stay below Airflow's mapping limit.
        :param done_by: the task that is mapped over the list. Item ``i`` is then done when its copy ``i`` has succeeded; if
            one copy fails for good, only its items come again.
        """
        if group is not None and group < 1:
            raise InboxRefusal(f"group={group} makes no groups. Give the number of items that one mapped task gets.")
        session = self._opened()
        session.check_done_by(done_by)
        session.check_map_length(group)
        base = session.take.left
        items = list(_units(session))
        session.hand_over(Copies(done_by, group or 1, base) if done_by else None)
        session.pause(ended=True)
        return items if group is None else [items[n : n + group] for n in range(0, len(items), group)]

    def commit(self) -> None:
        """Declare all that was handed out so far done, whatever becomes of the task."""
        self._opened().commit()

    def __len__(self) -> int:
        """Return how many items are not done."""
        return len(self._opened().take.left)

    def _opened(self) -> Session:
        """Return the open session. Outside a ``with`` block the first use of a task opens it."""
        session = self._session
        if session is None or not session.inside:
            place = surroundings_of(self._asset)
            if session is None or session.place.identity is not place.identity:
                session = self._session = self._open(place, inside=False)
        return session

    def _open(self, place: Surroundings, *, inside: bool) -> Session:
        holder = place.opener.holder
        if place.opener.max_active_runs != 1 and not self._allow_overlap:
            name = place.asset if place.asset.isidentifier() else "asset"
            raise InboxRefusal(
                f"DAG {holder.dag_id!r} may run {place.opener.max_active_runs} times at once; two runs would process the same "
                f"items. Set max_active_runs=1, or Inbox({name}, allow_overlap=True) if repeats are harmless."
            )
        consumer = self._consumer or f"{holder.dag_id}/{holder.task_id}"
        session = Session(place, Rules(place.asset, consumer, self._start, self._on_gap), inside=inside)
        if self._skip_if_empty and not session.take.left and not session.take.pieces:
            raise AirflowSkipException(f"nothing new in asset {place.asset!r} for {consumer}")
        return session


def _units(session: Session, reader: Reader | None = None) -> Iterator[Any]:
    """Hand out what is left of a session's take, one by one. Raises for what another reader is for."""
    last = session.last_slots()
    for slot, numbers, payload in session.parts():
        kind = kind_of(payload)
        if reader not in (None, kind.reader):
            raise _of_another_kind(session.asset, kind)
        units, positions = kind.units(payload, is_last=slot.start in last), list(slot.positions)
        for number in numbers:
            session.reached(number + 1)
            yield units[positions[number - slot.start]]


def _of_another_kind(asset: str, kind: Kind) -> InboxRefusal:
    has = "no objects but windows of rows" if kind.reader == "windows" else "no windows but objects"
    return InboxRefusal(
        f"asset {asset!r} has events of kind {kind.name!r}, which hold {has}. "
        f"Read them with {kind.reader}(), or with events(), which reads any kind."
    )


def _check_one_of(argument: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if value not in allowed:
        raise InboxRefusal(f"{argument}={value!r} is none of {', '.join(map(repr, allowed))}.")
