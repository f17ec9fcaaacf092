from __future__ import annotations

from types import SimpleNamespace

import pytest

from airflow_state_watchers.sources.s3_listing import READ, Listing, read_in_thread, read_listing, read_uploads

WHOLE = b"""<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>lake</Name><Prefix></Prefix>
<NextContinuationToken>a+b/c=</NextContinuationToken><KeyCount>2</KeyCount><MaxKeys>2</MaxKeys><EncodingType>url</EncodingType>
<IsTruncated>true</IsTruncated>
<Contents><Key>a%2Bb.csv</Key><LastModified>2026-11-01T12:00:00.000Z</LastModified><ETag>&quot;0f&quot;</ETag>
<ChecksumAlgorithm>CRC32</ChecksumAlgorithm><Size>3</Size><Owner><ID>x</ID><Key>not this</Key></Owner></Contents>
<Contents><Owner><Size>not this</Size></Owner><Size>0</Size><Key>%C3%A9&amp;</Key>
<LastModified>2026-11-01T12:00:01.000Z</LastModified></Contents>
<CommonPrefixes><Prefix>p/</Prefix></CommonPrefixes></ListBucketResult>"""


def test_a_listing_has_exact_keys_and_the_text_that_was_listed() -> None:
    listing = read_listing(WHOLE)
    assert listing is not None
    assert list(listing.entries()) == [
        ("a+b.csv", "2026-11-01T12:00:00.000Z", '"0f"', "3"),
        ("\u00e9&", "2026-11-01T12:00:01.000Z", "", "0"),
    ]
    assert listing.next_token == "a+b/c="


def test_the_last_page_leads_nowhere() -> None:
    listing = read_listing(WHOLE.replace(b"<IsTruncated>true", b"<IsTruncated>false"))
    assert listing is not None
    assert listing.next_token is None


def test_keys_that_are_not_encoded_are_left_alone() -> None:
    listing = read_listing(WHOLE.replace(b"<EncodingType>url</EncodingType>", b""))
    assert listing is not None
    assert listing.keys == ["a%2Bb.csv", "%C3%A9&"]


def test_a_key_with_a_line_in_it_is_decoded_as_well_as_those_beside_it() -> None:
    listing = read_listing(WHOLE.replace(b"a%2Bb.csv", b"a%0Ab+%2B"))
    assert listing is not None
    assert listing.keys == ["a\nb +", "\u00e9&"]


UPLOADS = b"""<?xml version="1.0" encoding="UTF-8"?>
<ListMultipartUploadsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Bucket>lake</Bucket><KeyMarker></KeyMarker>
<NextKeyMarker>b+%2B</NextKeyMarker><NextUploadIdMarker>u2</NextUploadIdMarker><EncodingType>url</EncodingType>
<IsTruncated>true</IsTruncated><Upload><Key>a%2Fb</Key><UploadId>u1</UploadId><Owner><ID>x</ID></Owner>
<Initiated>2026-11-01T12:00:00.000Z</Initiated></Upload><Upload><Key>b+%2B</Key><UploadId>u2</UploadId>
<Initiated>2026-11-01T12:00:01.000Z</Initiated></Upload></ListMultipartUploadsResult>"""


def test_a_list_of_uploads_has_exact_keys() -> None:
    page = read_uploads(UPLOADS)
    assert page is not None
    assert list(page.entries()) == [
        ("a/b", "u1", "2026-11-01T12:00:00.000Z"),
        ("b +", "u2", "2026-11-01T12:00:01.000Z"),
    ]
    assert page.next_marker == ("b +", "u2")
    last = read_uploads(UPLOADS.replace(b"<IsTruncated>true", b"<IsTruncated>false"))
    assert last is not None
    assert last.next_marker is None


def test_keys_of_uploads_that_are_said_to_be_encoded_and_are_not_are_left_alone() -> None:
    """As LocalStack does it."""
    page = read_uploads(UPLOADS.replace(b"a%2Fb", "é=%2F".encode()))
    assert page is not None
    assert page.keys == ["é=%2F", "b+%2B"]


@pytest.mark.parametrize(
    "body",
    [
        WHOLE,
        UPLOADS[:-1],
        UPLOADS.replace(b"IsTruncated", b"Other"),
        UPLOADS.replace(b"<NextKeyMarker>b+%2B</NextKeyMarker>", b""),
        UPLOADS.replace(b"<UploadId>u1</UploadId>", b""),
        UPLOADS.replace(b"a%2Fb", b"&#1;"),
    ],
)
def test_what_is_no_whole_list_of_uploads_is_none(body: bytes) -> None:
    assert read_uploads(body) is None


def test_a_body_that_broke_off_is_no_listing_wherever_it_broke_off() -> None:
    assert [end for end in range(len(WHOLE)) if read_listing(WHOLE[:end]) is not None] == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html><body>Please log in</body></html>",
        b"<Error><Code>InternalError</Code><IsTruncated>false</IsTruncated></Error>",
        WHOLE.replace(b"<IsTruncated>true</IsTruncated>", b""),
        WHOLE.replace(b"<IsTruncated>true", b"<IsTruncated>"),
        WHOLE.replace(b"<NextContinuationToken>a+b/c=</NextContinuationToken>", b""),
        WHOLE.replace(b"<NextContinuationToken>a+b/c=</NextContinuationToken>", b"<NextContinuationToken/>"),
        WHOLE.replace(b"<Key>a%2Bb.csv</Key>", b""),
        WHOLE.replace(b"<LastModified>2026-11-01T12:00:01.000Z</LastModified>", b""),
        WHOLE.replace(b"<Size>3</Size>", b""),
    ],
)
def test_what_is_not_a_whole_listing_is_none(body: bytes) -> None:
    assert body != WHOLE
    assert read_listing(body) is None


def test_a_long_text_stays_whole() -> None:
    key = b"%E2%82%AC" * 20_000
    listing = read_listing(WHOLE.replace(b"a%2Bb.csv", key))
    assert listing is not None
    assert listing.keys[0] == "\u20ac" * 20_000


async def test_only_a_body_that_was_read_is_taken_from_botocore() -> None:
    for body, status, taken in [(WHOLE, 200, True), (WHOLE[:-1], 200, False), (WHOLE, 503, False)]:
        response = {"status_code": status, "body": body}
        beside: dict[str, Listing] = {}
        await read_in_thread(response, beside, SimpleNamespace(name="ListObjectsV2"))
        assert (response["body"] == b"", READ in beside) == (taken, taken)
