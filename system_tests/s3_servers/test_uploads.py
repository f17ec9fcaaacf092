"""Multipart uploads: what they are stamped with, and what ListMultipartUploads says, on three servers over HTTP."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import unquote_plus

import pytest
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError

from system_tests.s3_servers.conftest import Conforms
from system_tests.s3_servers.looking import MakeSource, keys_of, next_second, only
from system_tests.s3_servers.multipart import complete, initiate

SECOND = timedelta(seconds=1)


def uploads(client: Any, bucket: str, **options: Any) -> list[tuple[str, str]]:
    answer = client.list_multipart_uploads(Bucket=bucket, **options)
    return [(entry["Key"], entry["UploadId"]) for entry in answer.get("Uploads", ())]


async def test_stamps(client: Any, conforms: Conforms, bucket: str, source: MakeSource) -> None:
    await next_second()
    before = datetime.now(timezone.utc)
    upload = initiate(client, bucket, "big")
    after = datetime.now(timezone.utc)
    (listed,) = client.list_multipart_uploads(Bucket=bucket)["Uploads"]
    initiated = listed["Initiated"]
    assert await keys_of(source()) == []
    for _ in range(3):
        await next_second()
    complete(client, bucket, upload)
    item = await only(source())
    conforms("Initiated", "now" if before - SECOND < initiated <= after else initiated, "now")
    conforms("Initiated precision", "finer" if initiated.microsecond else "whole seconds", "whole seconds")
    conforms("multipart stamp", "initiation" if item.position.value <= after else "completion", "initiation")
    conforms("stamp and Initiated", "equal" if item.position.value == initiated else "different", "equal")
    assert item.data["etag"].endswith("-1")


def test_ended_uploads_are_not_listed(client: Any, conforms: Conforms, bucket: str) -> None:
    done, given_up, open_one = (initiate(client, bucket, key) for key in ("done", "given up", "open"))
    complete(client, bucket, done)
    client.abort_multipart_upload(Bucket=bucket, Key=given_up[0], UploadId=given_up[1])
    conforms("ended uploads", uploads(client, bucket), [open_one])


@pytest.fixture
def begun(client: Any, bucket: str) -> list[tuple[str, str]]:
    """Uploads in the order in which they have to be listed, by key."""
    keys = ["b/2", "a/1", "b/1", "c", "b/a+b %\u00e9"]
    return sorted(initiate(client, bucket, key) for key in keys)


def test_list_uploads(client: Any, conforms: Conforms, bucket: str, begun: list[tuple[str, str]]) -> None:
    seen = uploads(client, bucket)
    conforms("upload keys", sorted(seen), begun)
    conforms("upload order", "by key" if seen == begun else "not by key", "by key")
    for prefix in ("b/", "b/a+b %\u00e9", "d"):
        right = [upload for upload in begun if upload[0].startswith(prefix)]
        conforms("upload Prefix", sorted(uploads(client, bucket, Prefix=prefix)), right)
    answer = client.list_multipart_uploads(Bucket=bucket, Delimiter="/")
    seen = [each["Prefix"] for each in answer.get("CommonPrefixes", ())]
    conforms("upload Delimiter", seen, ["a/", "b/"])
    conforms("upload Date", "date" in answer["ResponseMetadata"]["HTTPHeaders"], True)


def test_list_uploads_from_a_key(client: Any, conforms: Conforms, bucket: str, begun: list[tuple[str, str]]) -> None:
    seen = sorted(key for key, _ in uploads(client, bucket, KeyMarker="b/1"))
    conforms("upload KeyMarker", seen, [key for key, _ in begun if key > "b/1"])


def test_uploads_of_one_key(client: Any, conforms: Conforms, bucket: str) -> None:
    begun = [initiate(client, bucket, "k") for _ in range(8)]
    conforms("uploads of one key", "as begun" if uploads(client, bucket) == begun else "other", "as begun")


@pytest.mark.parametrize(
    ("topic", "options"), [("upload pages", {}), ("encoded upload pages", {"EncodingType": "url"})]
)
@pytest.mark.parametrize("keys", [["a", "b", "c", "\u00e9", "\u00e9x"], ["\u00e9"] * 5], ids=["keys", "one key"])
def test_upload_pages(
    client: Any, conforms: Conforms, bucket: str, keys: list[str], topic: str, options: dict[str, str]
) -> None:
    begun = [initiate(client, bucket, f"in/{key}") for key in keys]
    initiate(client, bucket, "other")
    pages: list[list[str]] = []
    marker: dict[str, str] = {}
    for _ in range(4):
        try:
            answer = client.list_multipart_uploads(Bucket=bucket, Prefix="in/", MaxUploads=2, **options, **marker)
        except ClientError:
            break
        pages.append([entry["UploadId"] for entry in answer["Uploads"]])
        if not answer["IsTruncated"]:
            break
        decoded = unquote_plus(answer["NextKeyMarker"])  # as it is where nothing was encoded
        marker = {"KeyMarker": decoded, "UploadIdMarker": answer["NextUploadIdMarker"]}
    whole = sorted(each for page in pages for each in page) == sorted(upload_id for _, upload_id in begun)
    conforms(topic, [len(page) for page in pages] if whole else "incomplete", [2, 2, 1])


def test_a_page_after_an_upload_that_has_ended(
    client: Any, conforms: Conforms, bucket: str, begun: list[tuple[str, str]]
) -> None:
    key, upload_id = begun[1]
    client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload_id)
    try:
        seen: Any = sorted(key for key, _ in uploads(client, bucket, KeyMarker=key, UploadIdMarker=upload_id))
    except ClientError as error:
        seen = error.response["Error"]["Code"]
    conforms("upload page after an ended one", seen, [key for key, _ in begun[2:]])


def test_upload_keys_are_encoded(client: Any, conforms: Conforms, bucket: str, begun: list[tuple[str, str]]) -> None:
    answer = client.list_multipart_uploads(Bucket=bucket, EncodingType="url")
    listed, keys = sorted(entry["Key"] for entry in answer["Uploads"]), [key for key, _ in begun]
    done = "done" if listed != keys and sorted(map(unquote_plus, listed)) == keys else "not done"
    conforms("upload EncodingType", (done, answer.get("EncodingType")), ("done", "url"))


def test_an_upload_that_is_no_xml(client: Any, conforms: Conforms, bucket: str) -> None:
    upload = initiate(client, bucket, "a")
    with contextlib.suppress(ClientError, ResponseParserError):  # the answer has the key, and no encoding there
        initiate(client, bucket, "b\u0001")
    try:
        seen = "listed" if upload in uploads(client, bucket, EncodingType="url") else "not listed"
    except (ClientError, ResponseParserError):
        seen = "no XML"
    conforms("upload U+0001", seen, "listed")


def test_more_uploads_than_a_page(client: Any, conforms: Conforms, bucket: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: initiate(client, bucket, f"{number:04}"), range(1001)))
    answer = client.list_multipart_uploads(Bucket=bucket)
    conforms("upload page size", (len(answer["Uploads"]), answer["IsTruncated"]), (1000, True))


def test_uploads_of_no_bucket(client: Any, conforms: Conforms) -> None:
    with pytest.raises(ClientError) as caught:
        client.list_multipart_uploads(Bucket="no-such-bucket")
    conforms("uploads of no bucket", caught.value.response["Error"]["Code"], "NoSuchBucket")
