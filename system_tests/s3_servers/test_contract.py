"""What S3Source takes for granted of a server's listings, seen through it on three servers over HTTP."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest
from botocore.exceptions import ClientError

from airflow_state_watchers.demo.servers import S3Server
from system_tests.s3_servers.conftest import Conforms, Define
from system_tests.s3_servers.looking import MakeSource, keys_of, keys_or_error, look, next_second, only

ODD = {
    "plus": "a+b",
    "space": "a b",
    "space at the end": "ends ",
    "%2B": "a%2Bb",
    "percent": "100%",
    "quotes": 'it\'s "so"',
    "ampersand": "a&b&amp;",
    "less than": "<Key>",
    "tab": "a\tb",
    "newline": "a\nb",
    "carriage return": "a\rb",
    "U+0001": "a\u0001b",
    "emoji": "\U0001f600",
    "NFC": "caf\u00e9",
    "NFD": "cafe\u0301",
    "1,024 bytes": "\u00e9" * 512,
    "double slash": "a//b",
    "leading slash": "/a",
    "only slashes": "//",
    "dots inside": "a/../b",
    "dots alone": "..",
    "leading dot": "./a",
    "backslash": "a\\b",
    "question mark": "a?b=c",
    "hash": "a#b",
    "semicolon": "a;b",
    "asterisk": "a*b",
}


async def test_keys_come_back_byte_by_byte(
    client: Any, conforms: Conforms, new_bucket: Callable[[], str], source: MakeSource
) -> None:
    wrong: dict[str, Any] = {}
    for oddity, key in ODD.items():
        bucket = new_bucket()  # one bad key spoils the listing of all
        try:
            client.put_object(Bucket=bucket, Key=key, Body=b"x")
        except ClientError as error:
            wrong[oddity] = f"PUT: {error.response['Error']['Code']}"
            continue
        for prefix in ("", key):
            keys = await keys_or_error(source(prefix, bucket_name=bucket))
            if keys != [key]:
                wrong[oddity] = keys
    conforms("keys", wrong, {})


async def test_a_prefix_is_literal(server: S3Server, conforms: Conforms, bucket: str, source: MakeSource) -> None:
    keys = ["100%", "100/a", "1000", "a*b", "aXb", "a+b", "a b", "a%20b", "a.b", "a\u00e9", "ae\u0301"]
    server.put_many(bucket, keys)
    found = {prefix: await keys_or_error(source(prefix)) for prefix in keys}
    conforms("prefix", {prefix: seen for prefix, seen in found.items() if seen != [prefix]}, {})


@pytest.mark.parametrize(("topic", "directory"), [("pages", "+ %"), ("non-ASCII pages", "\u00e9")])
async def test_pages_are_complete(
    server: S3Server, conforms: Conforms, bucket: str, source: MakeSource, topic: str, directory: str
) -> None:
    keys = [f"{directory}/{number:05}" for number in range(2500)]
    server.put_many(bucket, keys)
    seen = await keys_or_error(source())
    conforms(topic, "complete" if seen == keys else seen, "complete")


async def test_order(server: S3Server, conforms: Conforms, bucket: str, source: MakeSource) -> None:
    keys = ["B", "a", "\u00e9", "\uff5a", "\U0001f600"]  # UTF-16 has the last two the other way round
    server.put_many(bucket, reversed(keys))
    conforms("order", await keys_of(source()), keys)


async def test_what_is_no_object(server: S3Server, conforms: Conforms, bucket: str, source: MakeSource) -> None:
    conforms("empty bucket", await keys_of(source()), [])
    conforms("missing bucket", await keys_or_error(source(bucket_name="no-such-bucket")), "SourceMissing")
    server.put_many(bucket, {"dir/": b"", "dir/sub/": b"", "dir/file": b"", "full/": b"x"})
    conforms("markers", await keys_of(source()), ["dir/file", "full/"])


async def test_the_clock_is_the_servers(
    conforms: Conforms, source: MakeSource, caplog: pytest.LogCaptureFixture
) -> None:
    before = datetime.now(timezone.utc).replace(microsecond=0)
    now = (await source().open()).now
    assert before <= now <= datetime.now(timezone.utc)
    conforms("Date", "whole seconds" if now.microsecond == 0 and "no Date" not in caplog.text else now, "whole seconds")


async def test_stamps_and_etags(client: Any, conforms: Conforms, bucket: str, source: MakeSource) -> None:
    for number in range(4):
        client.put_object(Bucket=bucket, Key=f"{number}", Body=b"x")
        await asyncio.sleep(0.11)
    listed = client.list_objects_v2(Bucket=bucket)["Contents"]
    stamps = [entry["LastModified"] for entry in listed]
    items = await look(source())
    md5 = hashlib.md5(b"x", usedforsecurity=False).hexdigest()
    assert [item.position.value for item in items] == stamps
    assert {item.data["etag"] for item in items} == {md5}
    conforms("ETag", {entry["ETag"] for entry in listed}, {f'"{md5}"'})
    conforms("LastModified", "whole seconds" if not any(at.microsecond for at in stamps) else "finer", "whole seconds")
    heads = [client.head_object(Bucket=bucket, Key=entry["Key"])["LastModified"] for entry in listed]
    conforms("LIST and HEAD", "equal" if heads == stamps else "different", "equal")


async def test_overwrites_are_versions(client: Any, conforms: Conforms, bucket: str, source: MakeSource) -> None:
    async def identity_after(body: bytes) -> bytes:
        client.put_object(Bucket=bucket, Key="k", Body=body)
        return (await only(source())).identity

    await next_second()
    first, second = await identity_after(b"1"), await identity_after(b"2")
    await next_second()
    third = await identity_after(b"2")
    conforms("overwrite", len({first, second}), 2)
    conforms("same content", len({second, third}), 2)
    await next_second()
    client.put_object_tagging(Bucket=bucket, Key="k", Tagging={"TagSet": [{"Key": "a", "Value": "b"}]})
    conforms("tags", (await only(source())).identity == third, True)
    client.copy_object(
        Bucket=bucket, Key="k", CopySource={"Bucket": bucket, "Key": "k"}, MetadataDirective="REPLACE", Metadata={}
    )
    conforms("copy", (await only(source())).identity == third, False)


async def test_versioned_bucket(client: Any, conforms: Conforms, bucket: str, source: MakeSource) -> None:
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    versions, items = [], []
    for body in (b"1", b"2"):
        await next_second()
        versions.append(client.put_object(Bucket=bucket, Key="k", Body=body)["VersionId"])
        items.append(await only(source()))
    assert items[0].position < items[1].position
    marker = client.delete_object(Bucket=bucket, Key="k")["VersionId"]
    conforms("delete marker", await look(source()), [])
    await next_second()
    client.delete_object(Bucket=bucket, Key="k", VersionId=marker)
    client.delete_object(Bucket=bucket, Key="k", VersionId=versions[1])
    conforms("restored", await look(source()), [items[0]])


@pytest.mark.parametrize(
    ("topic", "fields", "right"),
    [
        ("wrong key", {"login": "AKIAIOSFODNN7EXAMPLE"}, "SourceDenied"),
        ("wrong secret", {"password": "wrong"}, "SourceDenied"),
        ("wrong region", {"extra": {"region_name": "eu-west-1"}}, "SourceMissing"),
    ],
)
async def test_wrong_connections(
    conforms: Conforms, source: MakeSource, define: Define, topic: str, fields: dict[str, Any], right: str
) -> None:
    define("other_conn", **fields)
    conforms(topic, await keys_or_error(source(aws_conn_id="other_conn")), right)
