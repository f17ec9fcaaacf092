"""Multipart uploads, step by step."""

from __future__ import annotations

from typing import Any


def initiate(client: Any, bucket: str, key: str) -> tuple[str, str]:
    """Return the key and the upload's id."""
    upload_id: str = client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    return key, upload_id


def complete(client: Any, bucket: str, upload: tuple[str, str], body: bytes = b"part") -> None:
    which = {"Bucket": bucket, "Key": upload[0], "UploadId": upload[1]}
    etag = client.upload_part(**which, PartNumber=1, Body=body)["ETag"]
    client.complete_multipart_upload(**which, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]})


def abort(client: Any, bucket: str, upload: tuple[str, str]) -> None:
    client.abort_multipart_upload(Bucket=bucket, Key=upload[0], UploadId=upload[1])
