"""The items of large batches, which lie beside the database, read as if they were in their events."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from airflow_state_watchers.core.manifest import Unreadable, load
from airflow_state_watchers.exceptions import InboxError
from airflow_state_watchers.tasks.refusal import InboxRefusal

Payload: TypeAlias = Mapping[str, Any]
Items: TypeAlias = "list[dict[str, Any]]"
ReadManifest: TypeAlias = Callable[[Mapping[str, Any]], "bytes | None"]
"""Returns what is stored at an event's ``manifest`` address; ``None`` if it is gone. Raises :class:`InboxError`."""


def whole(payload: Payload, read: ReadManifest) -> Payload | None:
    """Return an event's payload with its items; ``None`` if they are in a manifest that is gone."""
    if not payload.get("manifest"):
        return payload
    items = _items_of(payload, read)
    return None if items is None else {**payload, "items": items}


def _items_of(payload: Payload, read: ReadManifest) -> Items | None:
    name = f"{payload['manifest']['uri']}, the manifest of batch {payload['batch_id']},"
    data = read(payload["manifest"])
    if data is None:
        return None
    try:
        items = load(data)
    except Unreadable as error:
        raise InboxRefusal(f"{name} {error}. It was changed since the watcher wrote it.") from None
    if len(items) != payload["count"]:
        raise InboxRefusal(
            f"{name} holds {len(items)} items, and its event says {payload['count']}. It was changed since the watcher wrote it."
        )
    return items


class Manifests:
    """What one opening has read of them: the last ones, up to ``most`` items, and which were ``gone``: URIs by batch."""

    def __init__(self, read: ReadManifest, *, most: int) -> None:
        self.gone: dict[str, str] = {}
        self._read, self._most = read, most
        self._kept: dict[str, Items] = {}

    def whole(self, payload: Payload | None) -> Payload | None:
        """Return a payload with its items; ``None`` if they are gone, and for ``None``."""
        if payload is None or not payload.get("manifest"):
            return payload
        uri: str = payload["manifest"]["uri"]
        items = self._kept.pop(uri, None)
        if items is None:
            items = _items_of(payload, self._read)
        if items is None:
            self.gone[payload["batch_id"]] = uri
            return None
        self._kept[uri] = items
        while len(self._kept) > 1 and sum(map(len, self._kept.values())) > self._most:
            del self._kept[next(iter(self._kept))]
        return {**payload, "items": items}


def read_from_s3(address: Mapping[str, Any]) -> bytes | None:
    """Read a manifest with the Amazon provider's hook. Raises :class:`InboxError`, whose text has no secret."""
    uri, connection = address["uri"], address["connection"]
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    try:
        from airflow.providers.amazon.aws.hooks.s3 import S3Hook
    except ImportError:
        raise InboxRefusal(
            f"{uri}: a manifest is read with the Amazon provider, which is not installed here. "
            "Install airflow-provider-state-watchers[amazon] where the tasks run."
        ) from None
    try:
        client = S3Hook(aws_conn_id=connection, region_name=address["region"]).get_conn()
        data: bytes = client.get_object(Bucket=bucket, Key=key)["Body"].read()
    except Exception as error:
        status, code = _code_of(error)
        if status == 404 and code != "NoSuchBucket":
            return None
        raise _trouble(f"{code}, HTTP {status}" if code else type(error).__name__, status, uri, connection) from None
    return data


def _code_of(error: Exception) -> tuple[int, str]:
    answer = getattr(error, "response", None)
    if not isinstance(answer, dict):
        return 0, ""
    code = re.sub(r"[^A-Za-z0-9._-]", "", str(answer.get("Error", {}).get("Code", "")))[:64]
    return int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)), code


def _trouble(seen: str, status: int, uri: str, connection: str | None) -> InboxError:
    """Say what a failed read means. Another library's text can repeat a secret, so only codes are told."""
    place = f"connection {connection!r}" if connection else "the credentials of this machine (aws_conn_id=None)"
    text = f"{uri}: this manifest cannot be read with {place} ({seen})."
    if status in (401, 403):
        return InboxRefusal(
            f"{text} Grant it s3:GetObject there, and s3:ListBucket on the bucket: without that S3 says the same of a manifest "
            "that was removed."
        )
    if status in (301, 400, 404) and not seen.startswith("Expired"):
        return InboxRefusal(f"{text} Check the connection's endpoint and region, and that the bucket is there.")
    return InboxError(f"{text} A retry reads it again.")
