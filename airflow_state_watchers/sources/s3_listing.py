"""The XML of a LIST response, read so that the event loop is not held.

botocore's own reader takes some 30 ms for a page of a thousand objects, on the loop, and then reads the body a second time to
look for an error inside a 200. Both leave thousands of small objects behind, whose collection halts a large process for
longer than the reading. Here the body is read in a thread, in pieces, into flat lists of text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

PIECE = 16 * 1024  # the interpreter is held for one piece at a time
LISTING = "Listing"
"""The key under which :func:`read_in_thread` leaves the :class:`Listing` in botocore's parsed response."""


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


def read_listing(body: bytes) -> Listing | None:
    """Read the body of a LIST response; ``None`` for anything but one whole ``ListBucketResult``.

    A listing is whole if it says whether it goes on and, if it does, where, and if each object has a key, a time and a size.
    """
    reader = _Reader()
    try:
        for start in range(0, len(body), PIECE):
            reader.parser.Parse(body[start : start + PIECE], False)
        reader.parser.Parse(b"", True)
        return reader.listing()
    except (expat.ExpatError, KeyError):
        return None


async def read_in_thread(
    response_dict: dict[str, Any] | None, customized_response_dict: dict[str, Any], **_: Any
) -> None:
    """Handle botocore's ``before-parse`` of ListObjectsV2: put the :class:`Listing` beside the parsed response.

    A body that was read is taken away, so that botocore does not read it again. Every other body (an error inside a 200, a
    body that broke off) stays, for botocore to find out about and to try again.
    """
    if response_dict is None or response_dict["status_code"] != 200:
        return
    listing = await asyncio.to_thread(read_listing, response_dict["body"])
    if listing is not None:
        customized_response_dict[LISTING] = listing
        response_dict["body"] = b""


class _Reader:
    """Handlers for expat. They keep the text of the root's children and of the children of each ``Contents``."""

    def __init__(self) -> None:
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.CharacterDataHandler = self._data
        self.parser.EndElementHandler = self._end
        self._listing = Listing()
        self._root = ""
        self._depth = 0
        self._text = ""
        self._entry: dict[str, str] = {}
        self._result: dict[str, str] = {}

    def listing(self) -> Listing | None:
        """Return what was read, if it is a listing that says whether and where it goes on."""
        truncated = self._result.get("IsTruncated")
        token = self._result.get("NextContinuationToken")
        if (
            self._root != "ListBucketResult"
            or truncated not in ("true", "false")
            or (truncated == "true" and not token)
        ):
            return None
        self._listing.next_token = token if truncated == "true" else None
        self._listing.url_encoded = self._result.get("EncodingType") == "url"
        return self._listing

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if self._depth == 0:
            self._root = tag
        self._depth += 1
        self._text = ""

    def _data(self, text: str) -> None:
        self._text += text

    def _end(self, tag: str) -> None:
        self._depth -= 1
        if self._depth == 2:
            self._entry[tag] = self._text
        elif self._depth == 1:
            if tag == "Contents":
                self._end_of_object()
            else:
                self._result[tag] = self._text
            self._entry.clear()

    def _end_of_object(self) -> None:
        listing, entry = self._listing, self._entry
        listing.keys.append(entry["Key"])
        listing.modified.append(entry["LastModified"])
        listing.etags.append(entry.get("ETag", ""))
        listing.sizes.append(entry["Size"])
