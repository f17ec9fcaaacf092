"""The XML of the answers to the two calls of a poll, read so that the event loop is not held.

botocore's own reader takes some 30 ms for a page of a thousand objects, on the loop, and then reads the body a second time to
look for an error inside a 200. Both leave thousands of small objects behind, whose collection halts a large process for
longer than the reading. Here the body is read in a thread, in pieces, into flat lists of text.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_plus
from xml.parsers import expat

PIECE = 16 * 1024  # the interpreter is held for one piece at a time
_ENCODED = re.compile(r"[\w.~*/!'()%+-]*", re.ASCII)
READ = "Read"
"""The key under which :func:`read_in_thread` leaves what it read in botocore's parsed response."""


@dataclass(slots=True)
class Listing:
    """One ``ListBucketResult``. The four lists belong together, item by item, and hold the text that was listed."""

    keys: list[str] = field(default_factory=list)
    modified: list[str] = field(default_factory=list)
    etags: list[str] = field(default_factory=list)
    sizes: list[str] = field(default_factory=list)
    url_encoded: bool = False
    """Whether the keys are, as they were asked for; some servers do not do it, and do not say so."""
    next_token: str | None = None
    """Where the listing goes on; ``None`` after the last page."""

    def entries(self) -> Iterator[tuple[str, str, str, str]]:
        """Iterate over (key, LastModified, ETag, size)."""
        return zip(self.keys, self.modified, self.etags, self.sizes, strict=True)

    def text(self, key: str) -> str:
        """Return the exact key of one that was listed."""
        return unquote_plus(key) if self.url_encoded else key

    def up_to(self, key: str) -> Listing:
        """Return the listing without what comes after a key; it goes on only if the key has not been reached."""
        end = bisect_right(self.keys, _bytes(key), key=lambda listed: _bytes(self.text(listed)))
        return self if end == len(self.keys) else self._first(end)

    def only(self, key: str) -> Listing:
        """Return the listing with this key alone, or empty. Of a listing by prefix it is the first."""
        return self._first(1 if self.keys and self.text(self.keys[0]) == key else 0)

    def _first(self, end: int) -> Listing:
        return Listing(
            self.keys[:end], self.modified[:end], self.etags[:end], self.sizes[:end], url_encoded=self.url_encoded
        )


@dataclass(slots=True)
class UploadPage:
    """One ``ListMultipartUploadsResult``: keys, ids and times of the uploads in progress as they were listed."""

    keys: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    initiated: list[str] = field(default_factory=list)
    url_encoded: bool = False
    next_marker: tuple[str, str] | None = None
    """Where the listing goes on: exact key and upload id; ``None`` after the last page."""

    def entries(self) -> Iterator[tuple[str, str, str]]:
        """Iterate over (exact key, UploadId, Initiated)."""
        keys = map(unquote_plus, self.keys) if self.url_encoded else iter(self.keys)
        return zip(keys, self.ids, self.initiated, strict=True)


def read_listing(body: bytes) -> Listing | None:
    """Read the body of a LIST response; ``None`` for anything but one whole ``ListBucketResult``.

    A listing is whole if it says whether it goes on and, if it does, where, and if each object has a key, a time and a size.
    """
    listing = Listing()

    def add(entry: dict[str, str]) -> None:
        listing.keys.append(entry["Key"])
        listing.modified.append(entry["LastModified"])
        listing.etags.append(entry.get("ETag", ""))
        listing.sizes.append(entry["Size"])

    result = _read(body, "ListBucketResult", "Contents", add)
    if result is None:
        return None
    listing.url_encoded = result.get("EncodingType") == "url"
    if result["IsTruncated"] == "true":
        listing.next_token = result.get("NextContinuationToken") or None
        return listing if listing.next_token else None
    return listing


def read_uploads(body: bytes) -> UploadPage | None:
    """Read the body of a ListMultipartUploads response; ``None`` for anything but one whole result."""
    page = UploadPage()

    def add(entry: dict[str, str]) -> None:
        page.keys.append(entry["Key"])
        page.ids.append(entry["UploadId"])
        page.initiated.append(entry["Initiated"])

    result = _read(body, "ListMultipartUploadsResult", "Upload", add)
    if result is None:
        return None
    # LocalStack says so and does not do it.
    page.url_encoded = result.get("EncodingType") == "url" and all(map(_ENCODED.fullmatch, page.keys))
    if result["IsTruncated"] == "true":
        marker = result.get("NextKeyMarker") or ""
        marker = unquote_plus(marker) if page.url_encoded else marker
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
    found = await asyncio.to_thread(read, response_dict["body"])
    if found is not None:
        customized_response_dict[READ] = found
        response_dict["body"] = b""


def _read(body: bytes, root: str, entry: str, add: Callable[[dict[str, str]], None]) -> dict[str, str] | None:
    """Read a result: call ``add`` with the children of each ``entry``, return the other children of its ``root``.

    ``None`` for another root, a body that is not whole, an entry that ``add`` cannot take, or no word on whether it goes on.
    """
    reader = _Reader(entry, add)
    try:
        for start in range(0, len(body), PIECE):
            reader.parser.Parse(body[start : start + PIECE], False)
        reader.parser.Parse(b"", True)
    except (expat.ExpatError, KeyError):
        return None
    whole = reader.root == root and reader.result.get("IsTruncated") in ("true", "false")
    return reader.result if whole else None


def _bytes(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")


class _Reader:
    """Handlers for expat. They keep the text of the root's children and of the children of each entry."""

    def __init__(self, entry: str, add: Callable[[dict[str, str]], None]) -> None:
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.CharacterDataHandler = self._data
        self.parser.EndElementHandler = self._end
        self.root = ""
        self.result: dict[str, str] = {}
        self._tag, self._add = entry, add
        self._depth = 0
        self._text = ""
        self._entry: dict[str, str] = {}

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if self._depth == 0:
            self.root = tag
        self._depth += 1
        self._text = ""

    def _data(self, text: str) -> None:
        self._text += text

    def _end(self, tag: str) -> None:
        self._depth -= 1
        if self._depth == 2:
            self._entry[tag] = self._text
        elif self._depth == 1:
            if tag == self._tag:
                self._add(self._entry)
            else:
                self.result[tag] = self._text
            self._entry.clear()
