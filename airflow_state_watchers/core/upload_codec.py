"""Between remembered uploads and the JSON that is stored of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_state_watchers.core.codec import SEGMENT_VERSION
from airflow_state_watchers.core.position import IDENTITY_BYTES
from airflow_state_watchers.core.stored import Unreadable, load_time
from airflow_state_watchers.core.uploads import Upload, UploadSegment


def dump_uploads(segment: UploadSegment) -> dict[str, Any]:
    """Each upload is a list: key, id, when it was initiated, looks that missed it, and the versions known of it in hex."""
    rows = [
        [upload.key, upload.id, upload.initiated.isoformat(), upload.missed, [known.hex() for known in upload.known]]
        for upload in segment.uploads
    ]
    return {"v": SEGMENT_VERSION, "uploads": rows}


def load_uploads(name: str, stored: Any) -> UploadSegment:
    """Read :func:`dump_uploads`'s form. Raises :class:`Unreadable`."""
    if not isinstance(stored, Mapping) or stored.get("v") != SEGMENT_VERSION:
        raise Unreadable(f"uploads {name} are not of version {SEGMENT_VERSION}")
    try:
        return UploadSegment(name, tuple(_load_upload(name, *row) for row in stored["uploads"]))
    except Unreadable:
        raise
    except (KeyError, ValueError, TypeError) as error:
        raise Unreadable(f"uploads {name} cannot be read: {error!r}") from None


def _load_upload(name: str, key: Any, id_: Any, initiated: Any, missed: Any, known: Any) -> Upload:
    identities = tuple(bytes.fromhex(identity) for identity in known)
    if not (isinstance(key, str) and isinstance(id_, str) and isinstance(initiated, str) and type(missed) is int):
        raise ValueError(f"{key!r} is no upload")
    if any(len(identity) != IDENTITY_BYTES for identity in identities) or missed < 0:
        raise ValueError(f"what is known of {key!r} is not whole")
    int(id_[:6], 16)
    return Upload(key, id_, load_time(initiated, f"uploads {name}"), missed, identities)
