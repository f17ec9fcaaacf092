"""Options of ListObjectsV2, on three servers over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from airflow_state_watchers.demo.servers import S3Server
from system_tests.s3_servers.conftest import Conforms

KEYS = ["+ %/1", "a/1", "a/2", "b", "c/1", "caf\u00e9/1", "d"]
TOP = ["+ %/", "a/", "b", "c/", "caf\u00e9/", "d"]


def names(page: dict[str, Any]) -> list[str]:
    """Return keys and common prefixes."""
    return sorted(
        [entry["Key"] for entry in page.get("Contents", ())]
        + [entry["Prefix"] for entry in page.get("CommonPrefixes", ())]
    )


@pytest.fixture
def filled(server: S3Server, bucket: str) -> str:
    server.put_many(bucket, reversed(KEYS))
    return bucket


@pytest.mark.parametrize("after", ["a/1", "bb", "caf\u00e9/", "d"])
def test_start_after(client: Any, conforms: Conforms, filled: str, after: str) -> None:
    seen = names(client.list_objects_v2(Bucket=filled, StartAfter=after))
    conforms("StartAfter", seen, [key for key in KEYS if key > after])


def test_delimiter(client: Any, conforms: Conforms, filled: str) -> None:
    conforms("Delimiter", names(client.list_objects_v2(Bucket=filled, Delimiter="/")), TOP)
    seen = names(client.list_objects_v2(Bucket=filled, Delimiter="/", StartAfter="a0"))
    conforms("Delimiter and StartAfter", seen, TOP[2:])


@pytest.mark.parametrize(
    ("topic", "delimiter", "right"), [("small pages", "", KEYS), ("small pages with Delimiter", "/", TOP)]
)
def test_small_pages(
    client: Any, conforms: Conforms, filled: str, topic: str, delimiter: str, right: list[str]
) -> None:
    seen: list[str] = []
    token: dict[str, str] = {}
    for _ in right:
        try:
            page = client.list_objects_v2(Bucket=filled, Delimiter=delimiter, MaxKeys=2, **token)
        except ClientError as error:
            conforms(topic, error.response["Error"]["Code"], right)
            return
        seen += names(page)
        if not page["IsTruncated"]:
            break
        token = {"ContinuationToken": page["NextContinuationToken"]}
    conforms(topic, seen, right)
