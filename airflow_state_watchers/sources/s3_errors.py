"""What went wrong with a look at S3, in words for the person who has to mend it.

Messages are made of names, codes and numbers only, never of another library's text: such a text can repeat an access key,
a session token, a signed URL or a proxy's password. For the same reason the errors are to be raised without their cause.
"""

from __future__ import annotations

import asyncio
import errno
import re
import socket
from typing import NamedTuple

import aiohttp
from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from airflow_state_watchers.exceptions import SourceDenied, SourceError, SourceMissing, SourceUnavailable
from airflow_state_watchers.sources.s3_place import S3Place

EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
REFUSED = {
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidToken",
    "NotSignedUp",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
ACTIONS = {
    "ListObjectsV2": "s3:ListBucket",
    "ListMultipartUploads": "s3:ListBucket",
    "PutObject": "s3:PutObject",
    "HeadObject": "s3:GetObject",
    "DeleteObject": "s3:DeleteObject",
}
"""What a policy has to allow for each call."""
BUSY = {"SlowDown", "RequestLimitExceeded", "RequestTimeout", "Throttling", "ThrottlingException", "TooManyRequests"}
ELSEWHERE = {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect"}

NO_CREDENTIALS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.MetadataRetrievalError,
    boto.NoAuthTokenError,
    boto.ProfileNotFound,
    boto.SSOError,
    boto.TokenRetrievalError,
)
UNREACHABLE = (boto.EndpointConnectionError, boto.ConnectTimeoutError, boto.ProxyConnectionError, boto.SSLError)
SLOW = (asyncio.TimeoutError, TimeoutError, boto.ReadTimeoutError)
INTERRUPTED = (boto.BotoCoreError, ResponseParserError, aiohttp.ClientError, OSError, EOFError)


class Trouble(NamedTuple):
    """A failed call: what to raise; whether a client of the connection as it now is may do better; and at once."""

    error: SourceError
    rebuild: bool = False
    at_once: bool = False


def explain(error: Exception, place: S3Place) -> Trouble | None:
    """Say what a failed call means; ``None`` for an error that is not S3's, the network's or the credentials'."""
    if isinstance(error, boto.ClientError):
        return _explain_answer(error, place)
    if isinstance(error, NO_CREDENTIALS):
        return Trouble(_without_credentials(error, place), rebuild=True, at_once=True)
    if isinstance(error, boto.ParamValidationError):
        text = f"{place.bucket!r} cannot be the name of a bucket. Check {place.argument}."
        return Trouble(SourceMissing(f"{place.uri}: {text}"))
    if isinstance(error, UNREACHABLE):
        text = f"cannot connect to the S3 endpoint ({_cause(error)}). Check the network, and endpoint_url, region_name and "
        return Trouble(SourceUnavailable(f"{place.uri}: {text}verify of {place.connection}."), rebuild=True)
    if isinstance(error, SLOW):
        text = f"no whole answer within {place.timeout:g} s. If S3 is only slow, raise [state_watchers] source_timeout."
        return Trouble(SourceUnavailable(f"{place.uri}: {text}"))
    if isinstance(error, INTERRUPTED):
        return Trouble(SourceUnavailable(f"{place.uri}: the answer broke off ({_cause(error)}). It is tried again."))
    return None


def explain_connection(error: Exception, place: S3Place) -> SourceError:
    """Say why no client could be made of the connection, whatever the error is."""
    if isinstance(error, boto.ClientError):
        return _explain_answer(error, place).error
    if isinstance(error, NO_CREDENTIALS):
        return _without_credentials(error, place)
    if isinstance(error, (*UNREACHABLE, *SLOW)):
        text = f"the credentials of {place.connection} cannot be fetched ({_cause(error)}). Check the network and its role."
        return SourceUnavailable(f"{place.uri}: {text}")
    if isinstance(error, PermissionError):
        text = f"Airflow does not let this triggerer read {place.connection}. Allow it, or change aws_conn_id."
        return SourceDenied(f"{place.uri}: {text}")
    text = f"no S3 client can be made of {place.connection} ({type(error).__name__}). Check its extra: JSON, endpoint_url, role."
    return SourceDenied(f"{place.uri}: {text}")


def _without_credentials(error: Exception, place: S3Place) -> SourceDenied:
    text = f"no credentials in {place.connection}, nor on this machine ({type(error).__name__}). Enter them in the connection."
    return SourceDenied(f"{place.uri}: {text}")


def _explain_answer(error: boto.ClientError, place: S3Place) -> Trouble:
    """Explain an error that a service sent: by its code, else by its status. A 403 never means that nothing is there."""
    status, code, seen = _facts(error)
    if status >= 500 or status == 429 or code in BUSY:
        text = f"S3 cannot answer now ({seen}). It is tried again, ever more slowly."
        return Trouble(SourceUnavailable(f"{place.uri}: {text}"))
    if code in EXPIRED:
        text = f"the credentials of {place.connection} have expired ({seen}). Renew them; each try reads them again."
        return Trouble(SourceDenied(f"{place.uri}: {text}"), rebuild=True, at_once=True)
    if code in REFUSED:
        text = (
            f"the credentials of {place.connection} are not accepted ({seen}). Correct them; each try reads them again."
        )
        return Trouble(SourceDenied(f"{place.uri}: {text}"), rebuild=True, at_once=True)
    if code == "RequestTimeTooSkewed":
        text = f"the clock of this machine differs too much from S3's ({seen}). Set it right."
        return Trouble(SourceDenied(f"{place.uri}: {text}"))
    action = ACTIONS.get(error.operation_name)
    if action is None:
        text = (
            f"{_plain(error.operation_name)} is denied to {place.connection} ({seen}). Check its role and credentials."
        )
        return Trouble(SourceDenied(f"{place.uri}: {text}"), rebuild=True)
    if status in (401, 403):
        where = place.arn if action == "s3:ListBucket" else f"{place.arn}/{place.prefix}*"
        text = f"{action} is denied to {place.connection} ({seen}). Grant it on {where}."
        return Trouble(SourceDenied(f"{place.uri}: {text}"), rebuild=True)
    if code in ELSEWHERE or 300 <= status < 400:
        text = f"the bucket is in another region ({seen}). Set region_name here or in {place.connection}."
        return Trouble(SourceMissing(f"{place.uri}: {text}"), rebuild=True)
    if status == 404 or code == "InvalidBucketName":
        text = f"there is no bucket {place.bucket!r} ({seen}). Check {place.argument}, and the endpoint of {place.connection}."
        return Trouble(SourceMissing(f"{place.uri}: {text}"), rebuild=True)
    return Trouble(SourceUnavailable(f"{place.uri}: S3 does not take the request ({seen})."), rebuild=True)


def code_of(error: Exception) -> tuple[int, str]:
    """Return the HTTP status and the code of an error that a service sent; 0 and no code for any other."""
    return _facts(error)[:2] if isinstance(error, boto.ClientError) else (0, "")


def _facts(error: boto.ClientError) -> tuple[int, str, str]:
    """Return the HTTP status, the error code, and both with the request id for people."""
    metadata = error.response.get("ResponseMetadata", {})
    status = int(metadata.get("HTTPStatusCode", 0))
    code = _plain(error.response.get("Error", {}).get("Code")) or str(status)
    request = _plain(metadata.get("RequestId"))
    return status, code, f"{code}, HTTP {status}" + (f", request {request}" if request else "")


def _plain(text: object) -> str:
    """Return a code or an id that a service sent, as one short word."""
    return re.sub(r"[^A-Za-z0-9._-]", "", str(text or ""))[:64]


def _cause(error: BaseException) -> str:
    """Name an error and, where the operating system has an answer, that: ``EndpointConnectionError: ECONNREFUSED``."""
    name = type(error).__name__
    inner = getattr(error, "kwargs", {}).get("error", error)
    for candidate in (inner, getattr(inner, "os_error", None)):
        if isinstance(candidate, socket.gaierror):
            return f"{name}: the host name is not known"
        if isinstance(candidate, OSError) and (symbol := errno.errorcode.get(candidate.errno or 0)):
            return f"{name}: {symbol}"
    return name
