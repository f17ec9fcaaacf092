"""What is read of a listing is what botocore's own reader gives."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote_plus

import pytest
from botocore.parsers import ResponseParserError, create_parser
from botocore.session import get_session

from airflow_state_watchers.sources.s3_listing import Listing, read_listing
from airflow_state_watchers.sources.s3_scan import instant

SPACE = ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
OBJECT = "<Contents><Key>{key}</Key><LastModified>{modified}</LastModified>{etag}<Size>{size}</Size></Contents>"


def entry(
    key: str = "a", modified: str = "2026-11-01T12:00:00.000Z", etag: str = "<ETag>e</ETag>", size: str = "1"
) -> str:
    return OBJECT.format(key=key, modified=modified, etag=etag, size=size)


def body(*entries: str, space: str = SPACE, head: str = "", truncated: str = "false", encoded: bool = False) -> bytes:
    encoding = "<EncodingType>url</EncodingType>" if encoded else ""
    result = f"<IsTruncated>{truncated}</IsTruncated>{encoding}{''.join(entries)}"
    return f"{head}<ListBucketResult{space}>{result}</ListBucketResult>".encode()


def by_botocore(text: bytes) -> list[tuple[Any, ...]] | None:
    """Read with botocore; ``None`` where it finds no listing."""
    shape = get_session().get_service_model("s3").operation_model("ListObjectsV2").output_shape
    try:
        parsed = create_parser("rest-xml").parse({"status_code": 200, "headers": {}, "body": text}, shape)
    except ResponseParserError:
        return None
    encoded = parsed.get("EncodingType") == "url"
    return [
        (
            unquote_plus(each["Key"]) if encoded else each["Key"],
            each["LastModified"],
            each.get("ETag", ""),
            each["Size"],
        )
        for each in parsed.get("Contents", ())
    ]


def by_us(listing: Listing | None) -> list[tuple[Any, ...]] | None:
    if listing is None:
        return None
    return [(key, instant(modified), etag, int(size)) for key, modified, etag, size in listing.entries()]


DECLARED = '<?xml version="1.0" encoding="UTF-8"?>\n'
ODD = {
    "plain": body(entry()),
    "empty": body(),
    "declared": body(entry(), head=DECLARED),
    "without a namespace": body(entry(), space=""),
    "another namespace": body(entry(), space=' xmlns="https://storage.googleapis.com/"'),
    "with a prefix": body(entry()).replace(b"<", b"<n:").replace(b"<n:/", b"</n:").replace(b"xmlns=", b"xmlns:n="),
    "byte order mark": b"\xef\xbb\xbf" + body(entry(), head=DECLARED),
    "spaces between": body(entry(), entry("b")).replace(b"><", b">\n  <"),
    "entities": body(entry("a&amp;b&lt;&gt;&quot;&apos;&#233;&#x1F600;")),
    "emoji": body(entry("\N{GRINNING FACE}\u00e9e\u0301")),
    "spaces in a key": body(entry("  a  b  ")),
    "tab and line in a key": body(entry("a&#9;b&#10;c&#13;d")),
    "a raw line in a key": body(entry("a\nb")),
    "CDATA": body(entry("<![CDATA[a<b>&c]]>")),
    "CDATA and text": body(entry("x<![CDATA[<]]>y"), entry("b")),
    "a comment in a key": body(entry("a<!-- c -->b"), entry("c")),
    "an instruction in a key": body(entry("a<?pi x?>b"), entry("c")),
    "encoded": body(entry("a%2Bb+c%0Ad%25"), entry("%C3%A9"), encoded=True),
    "encoded wrongly": body(entry("100%"), entry("%zz%"), encoded=True),
    "said not to be encoded": body(entry("a%2Bb+c")),
    "no etag": body(entry("a", etag=""), entry("b"), entry("c", etag="<ETag/>")),
    "quoted etag": body(entry(etag="<ETag>&quot;0f-2&quot;</ETag>")),
    "a child in the middle": body(entry(etag="<Owner><ID>1</ID><Key>no</Key></Owner><ETag>e</ETag>")),
    "big": body(entry(size=str(5 * 2**40))),
    "no fraction": body(entry(modified="2026-11-01T12:00:00Z")),
    "nanoseconds": body(entry(modified="2026-11-01T12:00:00.123456Z")),
    "another form of time": body(entry(modified="Sun, 01 Nov 2026 12:00:00 GMT")),
    "another zone": body(entry(modified="2026-11-01T13:00:00+01:00")),
    "a thousand": body(*(entry(f"k{number:04}") for number in range(1000)), head=DECLARED),
    "a long key": body(entry("k" * 1024)),
    "cut": body(entry())[:-5],
    "cut in a character": body(entry("\u20ac"))[:-64],
    "something after it": body(entry()) + b"<more/>",
    "a control character": body(entry("a&#1;b")),
    "a raw control character": body(entry("a\x01b")),
    "an unknown entity": body(entry("&nbsp;")),
    "no XML": b"Service Unavailable",
    "nothing": b" ",
}


@pytest.mark.parametrize("name", ODD)
def test_it_is_read_as_botocore_reads_it(name: str) -> None:
    assert by_us(read_listing(ODD[name])) == by_botocore(ODD[name])


def test_an_entity_of_a_document_is_not_expanded() -> None:
    """botocore would. S3 sends none, and a hostile endpoint could make a small body a huge one."""
    bomb = '<!DOCTYPE r [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    listing = read_listing(body(entry("&b;&b;"), head=bomb))
    assert listing is not None
    assert listing.keys == ["&b;&b;"]
