"""The answers to the two calls of a poll, read so that the event loop is not held.

botocore's own reader takes some 30 ms for a page of a thousand objects, on the loop, and then reads the body a second time to
look for an error inside a 200. Both leave thousands of small objects behind, whose collection halts a large process for
longer than the reading. Here the body is read in a thread, into flat lists of text (:mod:`.s3_xml`).
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_plus

from airflow_state_watchers.sources.layout import bytes_of
from airflow_state_watchers.sources.s3_xml import read_result

_ENCODED = re.compile(r"[\w.~*/!'()%+-]*", re.ASCII)
_READER = ThreadPoolExecutor(1, thread_name_prefix="state-watchers-reader")
"""One thread for all: several that read at once would hold the interpreter from the loop in turns."""
READ = "Read"
"""The key under which :func:`read_in_thread` leaves what it read in botocore's parsed response."""
NOT_READ = "NotRead"
"""The key that says instead that it could not read the body of a 200."""


@dataclass(slots=True)
class Listing:
    """One ``ListBucketResult``: exact keys, and the other texts as they were listed. The four lists belong together."""

    keys: list[str] = field(default_factory=list)
    modified: list[str] = field(default_factory=list)
    etags: list[str] = field(default_factory=list)
    sizes: list[str] = field(default_factory=list)
    next_token: str | None = None
    """Where the listing goes on; ``None`` after the last page."""

    def entries(self) -> Iterator[tuple[str, str, str, str]]:
        """Iterate over (key, LastModified, ETag, size)."""
        return zip(self.keys, self.modified, self.etags, self.sizes, strict=True)

    def up_to(self, key: str) -> Listing:
        """Return the listing without what comes after a key; it goes on only if the key has not been reached."""
        end = bisect_right(self.keys, bytes_of(key), key=bytes_of)
        return self if end == len(self.keys) else self._first(end)

    def only(self, key: str) -> Listing:
        """Return the listing with this key alone, or empty. Of a listing by prefix it is the first."""
        return self._first(1 if self.keys and self.keys[0] == key else 0)

    def _first(self, end: int) -> Listing:
        return Listing(self.keys[:end], self.modified[:end], self.etags[:end], self.sizes[:end])


@dataclass(slots=True)
class UploadPage:
    """One ``ListMultipartUploadsResult``: exact keys, ids and times of the uploads in progress."""

    keys: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    initiated: list[str] = field(default_factory=list)
    next_marker: tuple[str, str] | None = None
    """Where the listing goes on: exact key and upload id; ``None`` after the last page."""

    def entries(self) -> Iterator[tuple[str, str, str]]:
        """Iterate over (key, UploadId, Initiated)."""
        return zip(self.keys, self.ids, self.initiated, strict=True)


def read_listing(body: bytes) -> Listing | None:
    """Read the body of a LIST response; ``None`` for anything but one whole ``ListBucketResult``.

    A listing is whole if it says whether it goes on and, if it does, where, and if each object has a key, a time and a size.
    """
    read = read_result(body, "ListBucketResult", "Contents", ("Key", "LastModified", "Size"), ("ETag",))
    if read is None:
        return None
    result, (keys, modified, sizes, etags) = read
    # Some servers do not encode the keys as they were asked to, and do not say that they do.
    keys = _decoded(keys) if result.get("EncodingType") == "url" else keys
    listing = Listing(keys, modified, etags, sizes)
    if result["IsTruncated"] == "true":
        listing.next_token = result.get("NextContinuationToken") or None
        return listing if listing.next_token else None
    return listing


def read_uploads(body: bytes) -> UploadPage | None:
    """Read the body of a ListMultipartUploads response; ``None`` for anything but one whole result."""
    read = read_result(body, "ListMultipartUploadsResult", "Upload", ("Key", "UploadId", "Initiated"))
    if read is None:
        return None
    result, (keys, ids, initiated) = read
    # LocalStack says so and does not do it.
    encoded = result.get("EncodingType") == "url" and all(map(_ENCODED.fullmatch, keys))
    page = UploadPage(_decoded(keys) if encoded else keys, ids, initiated)
    if result["IsTruncated"] == "true":
        marker = result.get("NextKeyMarker") or ""
        marker = unquote_plus(marker) if encoded else marker
        page.next_marker = (marker, result.get("NextUploadIdMarker") or "")
        return page if marker else None
    return page


async def read_in_thread(
    response_dict: dict[str, Any] | None, customized_response_dict: dict[str, Any], operation_model: Any, **_: Any
) -> None:
    """Handle botocore's ``before-parse`` of the two calls: put what was read beside the parsed response.

    A body that was read is taken away, so that botocore does not read it again. Every other body (an error inside a 200, a
    body that broke off) stays, for botocore to find out about and to try again.
    """
    if response_dict is None or response_dict["status_code"] != 200:
        return
    read = read_uploads if operation_model.name == "ListMultipartUploads" else read_listing
    found = await asyncio.get_running_loop().run_in_executor(_READER, read, response_dict["body"])
    if found is not None:
        customized_response_dict[READ] = found
        response_dict["body"] = b""
    else:
        customized_response_dict[NOT_READ] = True


def _decoded(keys: list[str]) -> list[str]:
    """Undo the encoding of keys; all at once, which is several times faster."""
    together = unquote_plus("\n".join(keys)).split("\n")
    return together if len(together) == len(keys) else [unquote_plus(key) for key in keys]
