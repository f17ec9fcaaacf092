"""A watcher's events, typed.

``S3Object`` passes through XCom, and so through ``.expand()``, as itself. Airflow's default configuration lets only its
own classes be read back from XCom, so importing this module allows this one for the process it is imported in; the
package's plugin (:mod:`airflow_state_watchers.tasks.plugin`) imports it in every task's process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Protocol

from airflow.sdk.serde import allow_class

from airflow_state_watchers.core.chain import Event
from airflow_state_watchers.core.micros import micros_of
from airflow_state_watchers.tasks.manifests import whole
from airflow_state_watchers.tasks.refusal import InboxRefusal
from airflow_state_watchers.tasks.surroundings import manifest_reader_of

VERSION = 1
S3_OBJECTS = "s3_objects"


@dataclass(frozen=True, slots=True)
class S3Object:
    """One version of one object, as listed.

    ``etag`` has no quotes; ``last_modified`` is aware; ``version_id`` is ``None`` where the watcher does not know it.
    As text it is its URI, so that templates can use it as it is.
    """

    bucket: str
    key: str
    size: int
    etag: str
    last_modified: datetime
    version_id: str | None = None

    __version__: ClassVar[int] = 1

    @property
    def uri(self) -> str:
        """``s3://bucket/key``. The key is not quoted: this is the object's exact name."""
        return f"s3://{self.bucket}/{self.key}"

    def __str__(self) -> str:
        return self.uri

    def serialize(self) -> dict[str, Any]:
        """Return the JSON-plain form that Airflow stores in XCom."""
        return {
            "bucket": self.bucket,
            "key": self.key,
            "size": self.size,
            "etag": self.etag,
            "last_modified": self.last_modified.isoformat(),
            "version_id": self.version_id,
        }

    @staticmethod
    def deserialize(data: dict[str, Any], version: int) -> S3Object:
        """Read :meth:`serialize`'s form; Airflow calls it with the version that wrote it."""
        if version > S3Object.__version__:
            raise TypeError(f"this S3Object was written by a newer release (version {version}); upgrade this one")
        return S3Object(**{**data, "last_modified": datetime.fromisoformat(data["last_modified"])})

    @classmethod
    def from_item(cls, item: Mapping[str, Any], bucket: str) -> S3Object:
        """Read one of an event's items."""
        return cls(
            bucket=bucket,
            key=item["key"],
            size=item["size"],
            etag=item["etag"],
            last_modified=datetime.fromisoformat(item["last_modified"]),
            version_id=item.get("version_id"),
        )


class AssetEvent(Protocol):
    """What is read of an asset event, whether it comes from ``inlet_events`` or ``triggering_asset_events``."""

    @property
    def asset(self) -> Any: ...

    @property
    def extra(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class WatcherEvent:
    """One batch of a watcher: ``count`` items, in order, from ``low`` to ``high``; ``asset`` is the asset's name."""

    asset: str
    batch_id: str
    low: datetime
    high: datetime
    count: int
    bytes: int
    items: tuple[S3Object, ...] = field(repr=False)

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
        return watcher_event(name, found, objects_of(found))


def payload_of(extra: Any) -> Mapping[str, Any] | None:
    """Return the payload in an asset event's ``extra`` if a watcher of this package sent it."""
    payload = extra.get("payload") if isinstance(extra, Mapping) else None
    if not isinstance(payload, Mapping) or payload.get("kind") != S3_OBJECTS:
        return None
    named = isinstance(payload.get("watcher"), str) and isinstance(payload.get("batch_id"), str)
    return payload if named and isinstance(payload.get("items"), list) else None


def count_of(payload: Mapping[str, Any]) -> int:
    """Return how many items an event has, in it or in its manifest."""
    return int(payload["count"]) if payload.get("manifest") else len(payload["items"])


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
        count=count_of(payload),
        replaces=(replaces,) if isinstance(replaces, str) else tuple(replaces),
    )


def objects_of(payload: Mapping[str, Any]) -> tuple[S3Object, ...]:
    return tuple(S3Object.from_item(item, payload["bucket"]) for item in payload["items"])


def identities_of(payload: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return what makes each of an event's items this version of this object."""
    return [(item["key"], item["etag"], item["last_modified"]) for item in payload["items"]]


def watcher_event(asset: str, payload: Mapping[str, Any], items: Sequence[S3Object]) -> WatcherEvent:
    """Return the event with only these of its items; ``low`` and ``high`` stay the batch's."""
    return WatcherEvent(
        asset=asset,
        batch_id=payload["batch_id"],
        low=datetime.fromisoformat(payload["low"]),
        high=datetime.fromisoformat(payload["high"]),
        count=len(items),
        bytes=sum(item.size for item in items),
        items=tuple(items),
    )


allow_class(S3Object)
