"""Multipart uploads on moto that behave as on AWS.

Moto stamps an object that was uploaded in parts when the upload is completed, and reports the same ``Initiated`` for all
uploads. AWS stamps the object with the time at which its upload was initiated, in whole seconds, and reports that. So here the
uploads are made in the process, by a clock of the test's, and the answers that list them are set right on their way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlsplit

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from requests.structures import CaseInsensitiveDict

from airflow_state_watchers.ports import Clock
from tests.sources.faulty_proxy import Answer, Fault, error

UPLOAD = re.compile(rb"<Upload>.*?</Upload>", re.DOTALL)
UPLOAD_ID = re.compile(rb"<UploadId>(.*?)</UploadId>")
KEY = re.compile(rb"<Key>(.*?)</Key>")
INITIATED = re.compile(rb"<Initiated>.*?</Initiated>")


@dataclass
class AwsUploads:
    """The uploads of a bucket. ``dress`` is for the proxy."""

    bucket: str
    clock: Clock
    initiated: dict[str, datetime] = field(default_factory=dict)
    _bodies: count[int] = field(default_factory=count)

    @property
    def _moto(self) -> Any:
        return s3_backends[DEFAULT_ACCOUNT_ID]["aws"]

    def begin(self, key: str) -> str:
        upload = self._moto.create_multipart_upload(
            self.bucket, key, CaseInsensitiveDict(), "STANDARD", {}, None, "", ""
        )
        self.initiated[upload.id] = self.clock.now().replace(microsecond=0)
        return str(upload.id)

    def complete(self, upload: str) -> None:
        part = self._moto.upload_part(self.bucket, upload, 1, b"part %d" % next(self._bodies))
        made = self._moto.complete_multipart_upload(self.bucket, upload, iter([(1, part.etag)]))
        made.last_modified = self.initiated[upload].replace(tzinfo=None)

    def abort(self, upload: str) -> None:
        self._moto.abort_multipart_upload(self.bucket, upload)

    def is_open(self, upload: str) -> bool:
        return upload in self._moto.get_bucket(self.bucket).multiparts

    def dress(self, answer: Answer) -> Answer:
        """Let a listing of uploads tell when they were initiated."""
        return answer.with_body(UPLOAD.sub(self._told, answer.body)) if b"<Upload>" in answer.body else answer

    def _told(self, upload: re.Match[bytes]) -> bytes:
        when = self.initiated[text(UPLOAD_ID, upload[0]).decode()].strftime("%Y-%m-%dT%H:%M:%S.000Z")
        return INITIATED.sub(f"<Initiated>{when}</Initiated>".encode(), upload[0])


def text(pattern: re.Pattern[bytes], upload: bytes) -> bytes:
    found = pattern.search(upload)
    assert found is not None
    return found[1]


@dataclass
class Paged:
    """Chooses the listings of uploads, and lets a server that lists all at once make pages of two, with a fault on one."""

    page: int = 0
    fault: Fault = field(default=lambda answer: answer)
    pages: int = 0
    """How many were asked for."""

    def __call__(self, target: str) -> Fault | None:
        query = parse_qs(urlsplit(target).query, keep_blank_values=True)
        if "uploads" not in query:
            return None
        self.pages += 1
        (marker,) = query.get("upload-id-marker", [""])
        return lambda answer: self._page(answer, marker.encode())

    def _page(self, answer: Answer, marker: bytes) -> Answer | None:
        found = sorted(UPLOAD.findall(answer.body), key=lambda upload: text(KEY, upload))
        ids = [text(UPLOAD_ID, upload) for upload in found]
        if marker and marker not in ids:
            return error(400, "InvalidArgument")(answer)
        start = ids.index(marker) + 1 if marker else 0
        rest, ids = found[start : start + 2], ids[start : start + 2]
        body = UPLOAD.sub(b"", answer.body).replace(b"</ListMultipart", b"".join(rest) + b"</ListMultipart")
        if start + 2 < len(found):
            markers = b"<NextKeyMarker>%b</NextKeyMarker>" % text(KEY, rest[-1])
            markers += b"<NextUploadIdMarker>%b</NextUploadIdMarker>" % ids[-1]
            body = body.replace(b"<IsTruncated>false</IsTruncated>", b"<IsTruncated>true</IsTruncated>" + markers)
        page = answer.with_body(body)
        return self.fault(page) if start // 2 + 1 == self.page else page
