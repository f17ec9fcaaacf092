"""What is right, topic by topic, and what each server gets wrong.

The tests assert the one or the other, so they fail when a server changes, for the better too. The table in
``docs/reference/s3_servers.rst`` is made of this: ``python -m system_tests.s3_servers.deviations``.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, NamedTuple


class Wrong(NamedTuple):
    seen: Any
    words: str


RIGHT = {
    "keys": "27 odd keys come back byte by byte: plus, percent, quotes, control characters, NFC and NFD, 1,024 bytes, dots",
    "prefix": "A prefix is literal: no wildcard, not decoded, not normalized",
    "pages": "2,500 keys come once each and in order, over three pages",
    "non-ASCII pages": "The same with keys that are not ASCII",
    "order": "Keys are in the order of their UTF-8 bytes",
    "empty bucket": "An empty bucket has an empty listing",
    "missing bucket": "A missing bucket is an error (SourceMissing)",
    "markers": "Directory markers are listed as empty objects, and so can be left out",
    "Date": "Responses have a Date",
    "LastModified": "LastModified has whole seconds",
    "LIST and HEAD": "LIST and HEAD give the same LastModified",
    "ETag": "The ETag of a plain upload is its MD5 in quotes",
    "overwrite": "Other content in the same second is a new version",
    "same content": "The same content a second later is a new version",
    "copy": "A copy onto itself is a new version",
    "tags": "New tags are no new version",
    "delete marker": "A key under a delete marker is not listed",
    "restored": "An older version that becomes the latest again has its old LastModified",
    "wrong key": "An unknown access key is refused (SourceDenied)",
    "wrong secret": "A wrong signature is refused (SourceDenied)",
    "wrong region": "A signature for another region is refused (SourceMissing)",
    "StartAfter": "LIST honours StartAfter",
    "Delimiter": "LIST honours Delimiter",
    "Delimiter and StartAfter": "LIST honours both at once",
    "small pages": "Pages of two keys are complete",
    "small pages with Delimiter": "Pages of two keys or common prefixes are complete",
    "multipart stamp": "LastModified of a multipart upload is when it was initiated",
    "stamp and Initiated": "It equals what ListMultipartUploads gave as Initiated",
    "Initiated": "Initiated is when the upload was initiated",
    "Initiated precision": "Initiated has whole seconds",
    "upload keys": "ListMultipartUploads lists all open uploads, keys exact",
    "upload EncodingType": "With EncodingType=url the keys are encoded, and the answer says so",
    "upload U+0001": "With EncodingType=url an upload whose key has a U+0001 does not spoil the listing",
    "ended uploads": "Completed and aborted uploads are not listed",
    "upload order": "Uploads are in the order of their keys",
    "uploads of one key": "Uploads of one key are in the order of their beginnings",
    "upload Prefix": "ListMultipartUploads honours Prefix, also one that is no whole key",
    "upload Delimiter": "It honours Delimiter",
    "upload KeyMarker": "KeyMarker alone begins after all uploads of that key",
    "upload pages": "MaxUploads makes pages; NextKeyMarker and NextUploadIdMarker lead through all of them",
    "encoded upload pages": "The same with EncodingType=url, and markers that need encoding",
    "upload page after an ended one": "A page goes on after an upload that has ended meanwhile (for AWS this is not documented)",
    "upload page size": "A page has at most 1,000 uploads",
    "upload Date": "Its responses have a Date",
    "uploads of no bucket": "A missing bucket is NoSuchBucket",
}

IGNORED = Wrong(("not done", None), "no, ignored")
NO_XML = Wrong("no XML", "no, the answer is no XML")
UNCHECKED = Wrong([], "no, accepted")

MOTO = {
    "keys": Wrong({"newline": "PUT: 404"}, "all but one: a newline is refused (404)"),
    "wrong key": UNCHECKED,
    "wrong secret": UNCHECKED,
    "wrong region": UNCHECKED,
    "multipart stamp": Wrong("completion", "no, when it was completed"),
    "stamp and Initiated": Wrong("different", "no"),
    "Initiated": Wrong(datetime(2010, 11, 10, 20, 48, 33, tzinfo=timezone.utc), "no, always 2010-11-10T20:48:33Z"),
    "upload EncodingType": IGNORED,
    "upload U+0001": NO_XML,
    "upload order": Wrong("not by key", "no, in the order of their beginnings"),
    "upload Delimiter": Wrong([], "no, ignored"),
    "upload KeyMarker": Wrong(["a/1", "b/1", "b/2", "b/a+b %\u00e9", "c"], "no, ignored"),
    "upload page after an ended one": Wrong(["a/1", "b/2", "b/a+b %\u00e9", "c"], "no, everything on one page"),
    "upload pages": Wrong([5], "no, everything on one page"),
    "encoded upload pages": Wrong([5], "no, everything on one page"),
    "upload page size": Wrong((1001, False), "no, everything on one page"),
}
MINISTACK = {
    "LastModified": Wrong("finer", "no, milliseconds"),
    "LIST and HEAD": Wrong("different", "no, HEAD has whole seconds"),
    "wrong secret": UNCHECKED,
    "wrong region": UNCHECKED,
    "multipart stamp": Wrong("completion", "no, when it was completed"),
    "stamp and Initiated": Wrong("different", "no"),
    "Initiated precision": Wrong("finer", "no, milliseconds"),
    "upload EncodingType": IGNORED,
    "upload U+0001": NO_XML,
    "uploads of one key": Wrong("other", "no, in the order of their ids"),
    "upload Delimiter": Wrong([], "no, ignored"),
    "upload KeyMarker": Wrong(["b/1", "b/2", "b/a+b %\u00e9", "c"], "no, begins with them again"),
}
LOCALSTACK = {
    "keys": Wrong({"only slashes": "PUT: InternalError"}, "all but one: ``//`` is refused (500)"),
    "non-ASCII pages": Wrong("SourceUnavailable", "no, the second page is a 500"),
    "wrong key": UNCHECKED,
    "wrong secret": UNCHECKED,
    "wrong region": UNCHECKED,
    "small pages with Delimiter": Wrong("InternalError", "not with non-ASCII keys, a page is a 500"),
    "upload EncodingType": Wrong(("not done", "url"), "no; the answer says that they are"),
    "upload U+0001": NO_XML,
    "encoded upload pages": Wrong("incomplete", "no: uploads are left out, or a marker is refused"),
    "upload page after an ended one": Wrong("InvalidArgument", "no, the marker is refused (400)"),
}
WRONG: dict[str, dict[str, Wrong]] = {"Moto": MOTO, "MiniStack": MINISTACK, "LocalStack": LOCALSTACK}


def conforms(server: str, topic: str, seen: object, right: object) -> None:
    """Assert that the server does what is right or, where a deviation is known, exactly that."""
    wrong = WRONG[server].get(topic)
    if wrong is None:
        assert seen == right, RIGHT[topic]
    else:
        assert seen != right, f"{server} has this right now: {RIGHT[topic]}"
        assert seen == wrong.seen, f"{server} gets this wrong in another way now: {RIGHT[topic]}"


def table() -> str:
    """Return the table of the documentation."""
    rows = [("What is right", *WRONG)]
    for topic, words in RIGHT.items():
        rows.append((words, *(WRONG[server][topic].words if topic in WRONG[server] else "yes" for server in WRONG)))
    cells = ["".join(f"   {'*' if n == 0 else ' '} - {cell}\n" for n, cell in enumerate(row)) for row in rows]
    return ".. list-table::\n   :header-rows: 1\n   :widths: 46 18 18 18\n\n" + "".join(cells)


if __name__ == "__main__":
    print(table(), end="")
