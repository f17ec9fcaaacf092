"""Objects under a prefix of a bucket, and the uploads in progress there.

``LastModified`` has whole seconds on AWS, so ties are normal: objects are ordered by ``LastModified``, then key. A version of
an object is known by its key, ETag and ``LastModified`` *as listed*; other calls give the same instant in another precision.

Only what a DAG file needs is imported here. The Amazon provider and botocore are imported in the thread that makes the client.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, Literal

from airflow_state_watchers.core.uploads import Upload
from airflow_state_watchers.sources.key_filter import KeyFilter
from airflow_state_watchers.sources.layout import Layout, Span
from airflow_state_watchers.sources.s3_calls import S3Calls
from airflow_state_watchers.sources.s3_listing import Listing
from airflow_state_watchers.sources.s3_place import S3Place
from airflow_state_watchers.sources.s3_scan import S3Scan, date_of
from airflow_state_watchers.sources.s3_uploads import UploadList

__all__ = ["KeyFilter", "S3Scan", "S3Source"]

log = logging.getLogger(__name__)

EVERYTHING = KeyFilter()


class S3Source:
    """A prefix of a bucket as a :class:`~airflow_state_watchers.ports.Source`; ``prefix=""`` is the whole bucket.

    ``timeout`` (seconds) bounds one call with its retries. ``botocore_config`` takes the options of botocore's ``Config`` and,
    as a connection does, ``signature_version="unsigned"``. With ``lookback`` given, each look also asks for the multipart
    uploads in progress, and says what of them ``lookback`` has to make up for where S3 does not tell. ``concurrency`` is how
    many pages may be on their way at once.
    """

    def __init__(
        self,
        bucket_name: str,
        *,
        prefix: str,
        layout: Layout | None = None,
        key_filter: KeyFilter = EVERYTHING,
        overwrites: Literal["deliver", "ignore"] = "deliver",
        lookback: timedelta | None = None,
        concurrency: int = 1,
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
        verify: bool | str | None = None,
        botocore_config: Mapping[str, Any] | None = None,
        timeout: float = 30.0,
    ) -> None:
        self.place = S3Place(
            bucket=bucket_name,
            prefix=prefix,
            aws_conn_id=aws_conn_id,
            region_name=region_name,
            verify=verify,
            botocore_config=botocore_config,
            timeout=timeout,
        )
        self.layout = layout or Layout(prefix)
        self.key_filter, self.overwrites, self.concurrency = key_filter, overwrites, concurrency
        self.calls = S3Calls(self.place)
        self.uploads = None if lookback is None else UploadList(self.calls, lookback)
        self._last: S3Scan | None = None
        self._missed_a_date = False

    def fields(self) -> dict[str, Any]:
        """Return what makes this source this source."""
        place = self.place
        return {"kind": "s3", "bucket": place.bucket, "prefix": place.prefix, "connection": place.aws_conn_id}

    async def open(self) -> S3Scan:
        """Begin a poll with its first call, whose ``Date`` is the poll's now: for uploads, or else for objects."""
        uploads: Sequence[Upload] | None = None
        first: Listing | None = None
        date: str | None = None
        if self.uploads is not None:
            uploads, date = await self.uploads.look()
        if uploads is None:
            whole = self.layout == Layout(self.place.prefix)
            listing, date = await self.calls.objects(Span(self.place.prefix), most=None if whole else 1)
            first = listing if whole else None
        self._last = S3Scan(
            place=self.place,
            layout=self.layout,
            key_filter=self.key_filter,
            now=self._time_of(date),
            fetch=self.page,
            first=first,
            cuts=self._last.cuts if self._last else (),
            most=self.concurrency,
            overwrites=self.overwrites,
            uploads=uploads,
            note=self.uploads.note if self.uploads else None,
        )
        return self._last

    async def page(self, span: Span, token: str | None) -> Listing:
        """Fetch the first page of a span's listing, or the one that ``token`` leads to. Raises :class:`SourceError`."""
        listing, _ = await self.calls.objects(span, token)
        return listing

    async def aclose(self) -> None:
        """Give back the client. A later call makes a new one."""
        await self.calls.aclose()

    def _time_of(self, date: str | None) -> datetime:
        try:
            return date_of(date)
        except ValueError:
            if not self._missed_a_date:
                self._missed_a_date = True
                log.warning(
                    "%s: the endpoint sends no Date, so this machine's clock is taken for S3's. If it runs ahead, objects can be "
                    "missed: raise settle and lookback by as much.",
                    self.place.uri,
                )
            return datetime.now(timezone.utc)
