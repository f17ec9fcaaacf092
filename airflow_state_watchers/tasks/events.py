"""A watcher's events, typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from airflow_state_watchers.core.chain import Event
from airflow_state_watchers.core.micros import micros_of
from airflow_state_watchers.tasks.kinds import KINDS, kind_of
from airflow_state_watchers.tasks.manifests import whole
from airflow_state_watchers.tasks.refusal import InboxRefusal
from airflow_state_watchers.tasks.surroundings import manifest_reader_of

VERSION = 1


class AssetEvent(Protocol):
    """What is read of an asset event, whether it comes from ``inlet_events`` or ``triggering_asset_events``."""

    @property
    def asset(self) -> Any: ...

    @property
    def extra(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class WatcherEvent:
    """One batch of a watcher; ``asset`` is the asset's name.

    Of an S3 watcher: ``count`` objects in ``items``, in order, from ``low`` to ``high``, both included. Of a SQL watcher:
    ``low`` and ``high`` are the database's own text of two values of the watermark column (``low`` is ``None`` where the
    window has no beginning), ``count`` the rows that the watcher saw between them, and ``items`` holds one
    :class:`SqlWindow`, or the rows themselves as dictionaries where the watcher has ``payload="rows"``.
    """

    asset: str
    batch_id: str
    low: datetime | str | None
    high: datetime | str
    count: int
    bytes: int
    items: tuple[Any, ...] = field(repr=False)

    @classmethod
    def from_asset_event(cls, event: AssetEvent) -> WatcherEvent | None:
        """Read an Airflow asset event, with its manifest if it has one. ``None`` if no watcher of this package sent it.

        Raises :class:`~airflow_state_watchers.exceptions.InboxError` if the manifest cannot be read or is gone.
        """
        payload = payload_of(event.extra)
        if payload is None:
            return None
        name: str = event.asset.name
        found = whole(payload, manifest_reader_of(name))
        if found is None:
            raise InboxRefusal(f"{payload['manifest']['uri']}, the manifest of batch {payload['batch_id']}, is gone.")
        return watcher_event(name, found, kind_of(found).units(found))


def payload_of(extra: Any) -> Mapping[str, Any] | None:
    """Return the payload in an asset event's ``extra`` if a watcher of this package sent it."""
    payload = extra.get("payload") if isinstance(extra, Mapping) else None
    if not isinstance(payload, Mapping):
        return None
    kind, named = payload.get("kind"), (payload.get("watcher"), payload.get("batch_id"))
    if not isinstance(kind, str) or kind not in KINDS or not all(isinstance(name, str) for name in named):
        return None
    return payload if isinstance(payload.get("items"), list) else None


def event_of(event_id: int, time: datetime, payload: Mapping[str, Any]) -> Event:
    """Return what the bookmark keeps of an event. Raises for one written by a newer release."""
    if payload.get("v") != VERSION:
        raise InboxRefusal(
            f"asset event {event_id} of watcher {payload['watcher']!r} has version {payload.get('v')!r}, this package "
            f"reads version {VERSION}. Upgrade airflow-provider-state-watchers where the tasks run."
        )
    replaces = payload.get("replaces") or ()
    return Event(
        id=event_id,
        time=micros_of(time),
        watcher=payload["watcher"],
        generation=int(payload["generation"]),
        batch_id=payload["batch_id"],
        previous=payload.get("previous"),
        count=kind_of(payload).size(payload),
        replaces=(replaces,) if isinstance(replaces, str) else tuple(replaces),
    )


def watcher_event(asset: str, payload: Mapping[str, Any], units: Sequence[Any]) -> WatcherEvent:
    """Return the event with only these of its units; ``low`` and ``high`` stay the batch's."""
    kind = kind_of(payload)
    count, size, items = kind.contents(payload, units)
    return WatcherEvent(
        asset=asset,
        batch_id=payload["batch_id"],
        low=kind.bound(payload["low"]),
        high=kind.bound(payload["high"]),
        count=count,
        bytes=size,
        items=items,
    )
