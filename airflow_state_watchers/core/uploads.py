"""Multipart uploads in progress, remembered until what they made has been seen.

On AWS an object that was uploaded in parts is listed with the time at which its upload was *initiated*, from the moment it is
complete: perhaps long after the watermark has passed that time. So each poll first asks for the uploads in progress. One that
was remembered and is gone has been completed or aborted, and its key is looked up, however old the stamp. An upload initiated
after the poll's first answer has a stamp that no horizon of this poll has passed, so none is missed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from airflow_state_watchers.core.position import IDENTITY_BYTES, Item

TOLERANCE = timedelta(seconds=1)
"""How far an object's stamp may be from that of the upload that made it: both are given in whole seconds."""
LOOKS = 2
"""How often the key of an upload that is gone is looked up before it counts as aborted."""
SEGMENT_BYTES = 24_000
"""About how much of the uploads is stored under one key."""


def upload_id(listed: str) -> str:
    """Digest an UploadId, which can be long, to 96 bits."""
    return hashlib.blake2b(listed.encode("utf-8", "surrogatepass"), digest_size=IDENTITY_BYTES).hexdigest()


@dataclass(frozen=True, slots=True)
class Upload:
    """One multipart upload.

    ``missed`` counts the looks that did not show it any more. ``known`` are identities of versions that were delivered though
    this upload was still in progress, and that carry a stamp as if it had made them.
    """

    key: str
    id: str
    initiated: datetime
    missed: int = 0
    known: tuple[bytes, ...] = ()

    @property
    def is_gone(self) -> bool:
        return self.missed > 0

    def made(self, item: Item) -> bool:
        """Whether a version with this key and this stamp may be what this upload made, and is not known already."""
        place = item.position
        return (
            place.tiebreak == self.key
            and abs(place.value - self.initiated) <= TOLERANCE
            and item.identity not in self.known
        )


def looked(known: Iterable[Upload], listed: Sequence[Upload] | None, *, oldest: datetime | None) -> tuple[Upload, ...]:
    """Return what to remember after a look: what is in progress and not older than ``oldest``, and what is gone.

    ``listed`` is ``None`` where S3 did not say what is in progress: then nothing more counts as gone.
    """
    if listed is None:
        return tuple(replace(upload, missed=upload.missed + 1) if upload.is_gone else upload for upload in known)
    before = {upload.id: upload for upload in known}
    uploads = []
    for upload in listed:
        old = before.pop(upload.id, upload)
        if oldest is None or upload.initiated >= oldest:
            uploads.append(replace(old, missed=0) if old.is_gone else old)
    return (*uploads, *(replace(upload, missed=upload.missed + 1) for upload in before.values()))


@dataclass(frozen=True, slots=True)
class Remembered:
    """Uploads by key, to ask of each version that a poll shows."""

    by_key: Mapping[str, Sequence[Upload]] = field(default_factory=dict)

    @classmethod
    def of(cls, uploads: Iterable[Upload]) -> Remembered:
        by_key: dict[str, list[Upload]] = {}
        for upload in uploads:
            by_key.setdefault(upload.key, []).append(upload)
        return cls(by_key)

    def made(self, item: Item) -> bool:
        """Whether one of them may have made this version."""
        return any(upload.made(item) for upload in self.by_key.get(item.position.tiebreak, ()))

    def gone(self) -> Remembered:
        """Those whose keys a poll looks up."""
        return Remembered.of(upload for row in self.by_key.values() for upload in row if upload.is_gone)


def scanned(
    uploads: Sequence[Upload], *, new: Iterable[Item] | None, old: Iterable[Item], horizon: datetime
) -> tuple[Upload, ...]:
    """Return what to remember after a complete scan up to ``horizon``.

    ``old`` are versions that it showed and that are delivered: no upload makes them again. An upload that is gone and has
    made none of the ``new`` versions is forgotten at its last look (``None``: there were more than could be looked at). What
    carries its stamp must have been readable by then.
    """
    known, made = _by_key(old), _by_key(new or ())

    def is_over(upload: Upload) -> bool:
        looked_up = new is not None and upload.missed >= LOOKS and upload.initiated + TOLERANCE < horizon
        return looked_up and not any(map(upload.made, made.get(upload.key, ())))

    return tuple(_knowing(upload, known.get(upload.key, ())) for upload in uploads if not is_over(upload))


def committed(uploads: Sequence[Upload], items: Iterable[Item]) -> tuple[Upload, ...]:
    """Return what to remember once these versions are delivered. An upload that is gone and made one of them is done with."""
    by_key = _by_key(items) if uploads else {}
    done = (upload for upload in uploads if upload.is_gone and any(map(upload.made, by_key.get(upload.key, ()))))
    gone = {upload.id for upload in done}
    return tuple(_knowing(upload, by_key.get(upload.key, ())) for upload in uploads if upload.id not in gone)


def _knowing(upload: Upload, items: Iterable[Item]) -> Upload:
    new = tuple(item.identity for item in items if upload.made(item))
    return replace(upload, known=upload.known + new) if new else upload


def _by_key(items: Iterable[Item]) -> dict[str, list[Item]]:
    by_key: dict[str, list[Item]] = {}
    for item in items:
        by_key.setdefault(item.position.tiebreak, []).append(item)
    return by_key


@dataclass(frozen=True, slots=True)
class UploadSegment:
    """Some of the uploads, stored under one key. Like a ledger's segment it never changes once a root names it."""

    name: str
    uploads: tuple[Upload, ...]


def pack(uploads: Sequence[Upload], stored: Sequence[UploadSegment], *, name: str) -> tuple[UploadSegment, ...]:
    """Divide the uploads among segments by their ids, so that few segments change when few uploads do.

    Segments that hold the same as a stored one are that one; the others are called ``name`` and a number.
    """
    weight = sum(len(upload.key.encode("utf-8", "surrogatepass")) + 90 + 20 * len(upload.known) for upload in uploads)
    count = 1
    while count * SEGMENT_BYTES < weight:
        count *= 2
    rows: dict[int, list[Upload]] = {}
    for upload in uploads:
        rows.setdefault(int(upload.id[:6], 16) % count, []).append(upload)
    same = {segment.uploads: segment for segment in stored}
    packed = []
    for number, row in sorted(rows.items()):
        content = tuple(sorted(row, key=lambda upload: upload.id))
        packed.append(same.get(content) or UploadSegment(f"{name}.{number}", content))
    return tuple(packed)
