"""Objects under a prefix of a bucket, by a full LIST of it.

``LastModified`` has whole seconds on AWS, so ties are normal: objects are ordered by ``LastModified``, then key. A version of
an object is known by its key, ETag and ``LastModified`` *as listed*; other calls give the same instant in another precision.

Only what a DAG file needs is imported here. The Amazon provider and botocore are imported in the thread that makes the client.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

from airflow_state_watchers.exceptions import SourceError, SourceMissing, SourceUnavailable
from airflow_state_watchers.sources.key_filter import KeyFilter
from airflow_state_watchers.sources.s3_listing import LISTING, Listing
from airflow_state_watchers.sources.s3_place import S3Place
from airflow_state_watchers.sources.s3_scan import S3Scan

if sys.version_info >= (3, 11):
    from asyncio import timeout as deadline
else:
    # aiohttp brings it where it is needed. Not asyncio.wait_for: that of 3.10 can swallow a cancellation.
    from async_timeout import timeout as deadline  # type: ignore[import-not-found,unused-ignore]

__all__ = ["KeyFilter", "S3Scan", "S3Source"]

log = logging.getLogger(__name__)

EVERYTHING = KeyFilter()


class S3Source:
    """A prefix of a bucket as a :class:`~airflow_state_watchers.ports.Source`; ``prefix=""`` is the whole bucket.

    ``timeout`` (seconds) bounds one call with its retries. ``botocore_config`` takes the options of botocore's ``Config`` and,
    as a connection does, ``signature_version="unsigned"``. The client is kept between polls, and made again of the connection
    as it then is after an error that another connection can mend.
    """

    def __init__(
        self,
        bucket_name: str,
        *,
        prefix: str,
        key_filter: KeyFilter = EVERYTHING,
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
        self.key_filter = key_filter
        self._client: Any = None
        self._missed_a_date = False

    def fields(self) -> dict[str, Any]:
        """Return what makes this source this source."""
        place = self.place
        return {"kind": "s3", "bucket": place.bucket, "prefix": place.prefix, "connection": place.aws_conn_id}

    async def open(self) -> S3Scan:
        """Begin a poll with the first LIST call, whose ``Date`` is the poll's now."""
        listing, date = await self._list(None)
        return S3Scan(self.place, self.key_filter, self._time_of(date), listing, self.list_page)

    async def aclose(self) -> None:
        """Close the client. A later call makes a new one."""
        client, self._client = self._client, None
        if client is not None:
            await client.__aexit__(None, None, None)

    async def list_page(self, token: str | None) -> Listing:
        """Fetch the first page of the listing, or the one that ``token`` leads to. Raises :class:`SourceError`."""
        listing, _ = await self._list(token)
        return listing

    async def _list(self, token: str | None) -> tuple[Listing, str | None]:
        """Fetch a page, and the ``Date`` of the response."""
        request = {"Bucket": self.place.bucket, "Prefix": self.place.prefix, "EncodingType": "url"}
        if token is not None:
            request["ContinuationToken"] = token
        while True:
            reused = self._client is not None
            try:
                client = await self._connected()
                async with deadline(self.place.timeout):
                    response = await client.list_objects_v2(**request)
            except SourceError:
                raise
            except Exception as error:
                await self._fail(error, may_retry=reused)
            else:
                if LISTING not in response:
                    raise SourceUnavailable(
                        f"{self.place.uri}: the answer is no whole listing. "
                        "Check the endpoint and the proxies on the way to it."
                    )
                return response[LISTING], response["ResponseMetadata"]["HTTPHeaders"].get("date")

    async def _connected(self) -> Any:
        if self._client is None:
            build_client = await asyncio.to_thread(_import_builder, self.place)
            try:
                async with deadline(self.place.timeout):
                    client = await asyncio.to_thread(build_client, self.place)
            except (asyncio.TimeoutError, TimeoutError):
                raise SourceUnavailable(
                    f"{self.place.uri}: Airflow and the credentials service did not provide {self.place.connection} within "
                    f"{self.place.timeout:g} s. If they are only slow, raise [state_watchers] source_timeout."
                ) from None
            self._client = await client.__aenter__()
        return self._client

    async def _fail(self, error: Exception, *, may_retry: bool) -> None:
        """Raise what a failed call means; return if it is to be made again at once, with a new client.

        That is so when credentials that used to work ran out: a poll is not lost to what the connection already has anew.
        """
        from airflow_state_watchers.sources.s3_errors import explain

        trouble = explain(error, self.place)
        if trouble is None:
            raise error
        if trouble.rebuild:
            await self.aclose()
        if not (trouble.at_once and may_retry):
            raise trouble.error from None

    def _time_of(self, date: str | None) -> datetime:
        try:
            return _date(date)
        except ValueError:
            if not self._missed_a_date:
                self._missed_a_date = True
                log.warning(
                    "%s: the endpoint sends no Date, so this machine's clock is taken for S3's. If it runs ahead, objects can be "
                    "missed: raise settle and lookback by as much.",
                    self.place.uri,
                )
            return datetime.now(timezone.utc)


def _import_builder(place: S3Place) -> Callable[[S3Place], Any]:
    """Import what takes seconds to import: in a thread, and outside any time-out."""
    try:
        from airflow_state_watchers.sources.s3_client import build_client
    except ImportError as error:
        raise SourceMissing(
            f"{place.uri}: the Amazon provider with its async client cannot be imported ({error}). "
            "Install airflow-provider-state-watchers[amazon]."
        ) from error
    return build_client


def _date(header: str | None) -> datetime:
    """Read a ``Date`` header. Raises ``ValueError``."""
    if header is None:
        raise ValueError("no Date")
    value = parsedate_to_datetime(header)
    return value.astimezone(timezone.utc) if value.tzinfo else value.replace(tzinfo=timezone.utc)
