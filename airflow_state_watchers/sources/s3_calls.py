"""Calls to S3, with their time-outs and their errors; the two of a poll among them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from airflow_state_watchers.exceptions import SourceError, SourceMissing, SourceUnavailable
from airflow_state_watchers.sources.layout import Span
from airflow_state_watchers.sources.s3_listing import NOT_READ, READ, Listing, UploadPage
from airflow_state_watchers.sources.s3_place import S3Place
from airflow_state_watchers.sources.s3_pool import ClientPool, Shared

if sys.version_info >= (3, 11):
    from asyncio import timeout as deadline
else:
    # aiohttp brings it where it is needed. Not asyncio.wait_for: that of 3.10 can swallow a cancellation.
    from async_timeout import timeout as deadline  # type: ignore[import-not-found,unused-ignore]


@dataclass(frozen=True, slots=True)
class Refused:
    """A server does not list uploads: ``AccessDenied``, or another code; ``MinIO`` does so by exact key alone.

    ``marker``: the upload at which a page was to go on is gone; ``unreadable``: the answer is no list.
    """

    code: str

    @property
    def is_unreadable(self) -> bool:
        return self.code == "unreadable"

    @property
    def is_marker(self) -> bool:
        return self.code == "marker"

    @property
    def at_once(self) -> Refused:
        """What it is if it was the first page that was refused: there is no marker yet that could be gone."""
        return Refused("InvalidArgument") if self.is_marker else self

    @property
    def is_final(self) -> bool:
        return not (self.is_marker or self.is_unreadable)

    def note(self, place: S3Place, lookback: timedelta) -> str:
        """Say what is missed, and what to do."""
        missed = f"Uploads longer than lookback={lookback} can be missed."
        if self.code == "AccessDenied":
            return f"s3:ListBucketMultipartUploads is denied. {missed} Grant it on {place.arn} or raise lookback."
        if self.code == "MinIO":
            return f"MinIO does not list uploads by prefix. {missed} Raise lookback if there are such, or set upload_ttl=0."
        if self.is_marker:
            return f"this server does not go on with a list of uploads at its markers. {missed} Raise lookback if there are such."
        if self.is_unreadable:
            return f"the list of multipart uploads cannot be read. {missed} Is there one whose key XML cannot hold? Abort it."
        return f"this server does not list uploads ({self.code}). {missed} Raise lookback if there are such, or set upload_ttl=0."


class S3Calls:
    """Lists objects and uploads of one bucket through a client that other watchers of the connection share.

    The client is given back and another one made of the connection as it then is after an error that another connection can
    mend. Every method raises :class:`SourceError`.
    """

    def __init__(self, place: S3Place) -> None:
        self.place = place
        self._shared: Shared | None = None

    async def objects(
        self, span: Span, token: str | None = None, *, most: int | None = None
    ) -> tuple[Listing, str | None]:
        """Fetch a page of a span's listing, and the ``Date`` of the answer."""
        request: dict[str, Any] = {"Prefix": span.prefix, "EncodingType": "url"}
        if most is not None:
            request["MaxKeys"] = most
        if token is not None:
            request["ContinuationToken"] = token
        elif span.after is not None:
            request["StartAfter"] = span.after
        response = await self._call("list_objects_v2", request)
        if READ not in response:
            raise SourceUnavailable(
                f"{self.place.uri}: the answer is no whole listing. Check the endpoint and the proxies on the way to it."
            )
        return response[READ], response["ResponseMetadata"]["HTTPHeaders"].get("date")

    async def uploads(self, marker: tuple[str, str] | None = None) -> tuple[UploadPage, dict[str, str]] | Refused:
        """Fetch a page of the multipart uploads in progress, and the headers of the answer."""
        request: dict[str, Any] = {"Prefix": self.place.prefix, "EncodingType": "url"}
        if marker is not None:
            request["KeyMarker"] = marker[0]
            if marker[1]:
                request["UploadIdMarker"] = marker[1]
        response = await self._call("list_multipart_uploads", request, answer=_refusal)
        if isinstance(response, Refused):
            return response
        headers = response["ResponseMetadata"]["HTTPHeaders"]
        if headers.get("server", "").startswith("MinIO"):
            return Refused("MinIO")
        return (response[READ], headers) if READ in response else Refused("unreadable")

    async def aclose(self) -> None:
        """Give the client back. A later call leases one again."""
        shared, self._shared = self._shared, None
        if shared is not None:
            await ClientPool.here().release(shared)

    async def _call(
        self, method: str, request: dict[str, Any], *, answer: Callable[[Exception], Any] | None = None
    ) -> Any:
        """Make a call, and once more at once where that may help. ``answer``: what is returned for an error, if not ``None``."""
        may_retry = self._shared is not None
        while True:
            shared: Shared | None = None
            try:
                shared = await self._lease()
                shared.users += 1  # until it has answered: another call may give up this client meanwhile
                try:
                    async with deadline(self.place.timeout):
                        return await getattr(shared.client, method)(Bucket=self.place.bucket, **request)
                finally:
                    await ClientPool.here().release(shared)
            except SourceError:
                raise
            except Exception as error:
                if answer is not None and (answered := answer(error)) is not None:
                    return answered
                await self._fail(error, shared, may_retry=may_retry)
                may_retry = False

    async def _lease(self) -> Shared:
        if self._shared is not None and self._shared.stale:
            await self.aclose()  # another watcher has found out that it does not work any more
        if self._shared is None:
            build_client = await asyncio.to_thread(_import_builder, self.place)
            try:
                async with deadline(self.place.timeout):
                    shared = await ClientPool.here().lease(self.place, build_client)
            except (asyncio.TimeoutError, TimeoutError):
                raise SourceUnavailable(
                    f"{self.place.uri}: Airflow and the credentials service did not provide {self.place.connection} within "
                    f"{self.place.timeout:g} s. If they are only slow, raise [state_watchers] source_timeout."
                ) from None
            if self._shared is not None:  # two calls at once have asked
                await ClientPool.here().release(shared)
            else:
                self._shared = shared
        return self._shared

    async def _fail(self, error: Exception, used: Shared | None, *, may_retry: bool) -> None:
        """Raise what a failed call means; return if it is to be made again at once, with another client than it ``used``.

        That is so when credentials that used to work ran out: a poll is not lost to what the connection already has anew.
        """
        from airflow_state_watchers.sources.s3_errors import explain

        trouble = explain(error, self.place)
        if trouble is None:
            raise error
        if trouble.rebuild and used is not None:
            ClientPool.here().retire(used)
            if self._shared is used:  # and not what another call has leased meanwhile
                await self.aclose()
        if not (trouble.at_once and may_retry):
            raise trouble.error from None


def _refusal(error: Exception) -> Refused | None:
    """Say whether a failed ListMultipartUploads means that the server will not answer it, while it may answer others."""
    from botocore.parsers import ResponseParserError

    from airflow_state_watchers.sources.s3_errors import code_of

    status, code = code_of(error)
    if status == 403 and code in ("AccessDenied", "403", "Forbidden"):
        return Refused("AccessDenied")
    # botocore takes what is no XML for a 500 without a code; an error inside a 200 has one.
    no_xml = code == "500" and NOT_READ in getattr(error, "response", ())
    if no_xml or isinstance(error, ResponseParserError):
        return Refused("unreadable")
    if (status == 400 and code == "InvalidArgument") or code == "NoSuchUpload":
        return Refused("marker")
    if status in (405, 501) or code in ("NotImplemented", "MethodNotAllowed", "UnsupportedOperation", "NotSupported"):
        return Refused(code)
    return None


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
