"""Manifests in a bucket: one object for each batch that is too large for an event."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from airflow_state_watchers.core.manifest import dump, folder_of, is_name, name_of
from airflow_state_watchers.exceptions import SourceUnavailable
from airflow_state_watchers.sources.layout import Span
from airflow_state_watchers.sources.s3_calls import S3Calls
from airflow_state_watchers.sources.s3_place import S3Place
from airflow_state_watchers.sources.s3_scan import date_of, instant

SCHEME = "s3://"


def manifest_place(uri: str, watcher: str) -> tuple[str, str] | None:
    """Return bucket and prefix of a watcher's manifests under ``s3://bucket[/prefix]``; ``None`` for no such address."""
    bucket, _, prefix = uri.removeprefix(SCHEME).partition("/")
    if not uri.startswith(SCHEME) or not bucket:
        return None
    prefix = prefix.strip("/")
    return bucket, (f"{prefix}/" if prefix else "") + f"{folder_of(watcher)}/"


class S3Manifests(S3Calls):
    """A watcher's own folder (``place``) as a :class:`~airflow_state_watchers.ports.ManifestStore`.

    ``keep`` is how old a manifest may grow, by S3's clock.
    """

    def __init__(self, place: S3Place, *, keep: timedelta) -> None:
        super().__init__(place)
        self._keep = keep

    async def write(self, batch_id: str, items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Put the object unless it is there. One that a restarted watcher finds nearing its end is put again."""
        key = self.place.prefix + name_of(batch_id)
        body = await asyncio.to_thread(dump, items)
        if not (await self._put(key, body, IfNoneMatch="*") or await self._is_young(key)):
            await self._put(key, body)
        place = self.place
        uri = f"{SCHEME}{place.bucket}/{key}"
        return {"uri": uri, "connection": place.aws_conn_id, "region": place.region_name}

    async def clean(self) -> None:
        token: str | None = None
        seen: set[str] = set()
        now: datetime | None = None
        while True:
            listing, date = await self.objects(Span(self.place.prefix), token)
            now = now or self._time_of(date)
            for key, modified, _, _ in listing.entries():
                if is_name(key.removeprefix(self.place.prefix)) and now - self._instant(modified) > self._keep:
                    await self._call("delete_object", {"Key": key})
            token = listing.next_token
            if token is None:
                return
            if token in seen:
                raise SourceUnavailable(f"{self.place.uri}: the listing does not advance, S3 repeats a page.")
            seen.add(token)

    async def _put(self, key: str, body: bytes, **condition: str) -> bool:
        """Return whether it was put: not if it is there, nor if the server does not know the condition."""
        request = {"Key": key, "Body": body, "ContentType": "application/gzip", **condition}
        return await self._call("put_object", request, answer=_not_put if condition else None) is not False

    async def _is_young(self, key: str) -> bool:
        """Return whether it is there and not near its end. Where that may not be asked for it may be put again."""
        found = await self._call("head_object", {"Key": key}, answer=_not_seen)
        if found is False:
            return False
        now = self._time_of(found["ResponseMetadata"]["HTTPHeaders"].get("date"))
        modified: datetime = found["LastModified"]
        return now - modified < self._keep / 2

    def _time_of(self, date: str | None) -> datetime:
        try:
            return date_of(date)
        except ValueError:
            raise SourceUnavailable(
                f"{self.place.uri}: the endpoint sends no Date, so no manifest has an age."
            ) from None

    def _instant(self, modified: str) -> datetime:
        try:
            return instant(modified)
        except ValueError:
            raise SourceUnavailable(f"{self.place.uri}: cannot read LastModified={modified!r} of a manifest.") from None


def _not_put(error: Exception) -> bool | None:
    from airflow_state_watchers.sources.s3_errors import code_of

    status, code = code_of(error)
    is_there = status == 412
    is_unknown = status == 501 or code in ("NotImplemented", "InvalidArgument", "InvalidRequest")
    return False if is_there or is_unknown else None


def _not_seen(error: Exception) -> bool | None:
    from airflow_state_watchers.sources.s3_errors import code_of

    return False if code_of(error)[0] in (403, 404) else None
