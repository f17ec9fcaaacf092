"""What the source's errors say, and that they pass when their cause is mended."""

from __future__ import annotations

import pytest

from airflow_state_watchers.exceptions import SourceDenied, SourceMissing, SourceUnavailable
from tests.sources.conftest import SECRET, Define, Lake, MakeSource, keys_of
from tests.sources.faulty_proxy import Fault, FaultyProxy, error

TO_MEND: list[tuple[Fault, type[Exception], str]] = [
    (error(403, "AccessDenied"), SourceDenied, r"s3:ListBucket .*'lake_conn' .*on arn:aws:s3:::lake\."),
    (error(403, ""), SourceDenied, "HTTP 403"),
    (error(401, "Unauthorized"), SourceDenied, "HTTP 401"),
    (error(403, "AllAccessDisabled"), SourceDenied, "AllAccessDisabled"),
    (error(403, "RequestTimeTooSkewed"), SourceDenied, "clock of this machine"),
    (error(403, "InvalidAccessKeyId"), SourceDenied, "'lake_conn' are not accepted"),
    (error(403, "SignatureDoesNotMatch"), SourceDenied, "'lake_conn' are not accepted"),
    (error(400, "ExpiredToken"), SourceDenied, "'lake_conn' have expired"),
    (error(404, "NoSuchBucket"), SourceMissing, "no bucket 'lake'"),
    (error(400, "InvalidBucketName"), SourceMissing, "no bucket 'lake'"),
    (error(400, "AuthorizationHeaderMalformed"), SourceMissing, "region_name"),
    (error(400, "InvalidArgument"), SourceUnavailable, "InvalidArgument, HTTP 400"),
    (error(500, "InternalError"), SourceUnavailable, "cannot answer now .InternalError, HTTP 500"),
    (error(503, ""), SourceUnavailable, "cannot answer now .503, HTTP 503"),
    (error(400, "RequestTimeout"), SourceUnavailable, "cannot answer now .RequestTimeout, HTTP 400"),
]


@pytest.mark.parametrize(("fault", "kind", "text"), TO_MEND)
async def test_errors_say_what_is_wrong_where_and_what_to_do_and_pass_when_it_is_mended(
    fault: Fault, kind: type[Exception], text: str, lake: Lake, source: MakeSource, proxy: FaultyProxy
) -> None:
    lake.put("orders/a")
    a_source = source("orders/")
    proxy.always = fault
    with pytest.raises(kind, match=text) as caught:
        await a_source.open()
    assert str(caught.value).startswith("s3://lake/orders/: ")
    proxy.always = None
    assert await keys_of(a_source) == ["orders/a"]


async def test_a_bucket_that_is_not_there_is_found_once_it_is(source: MakeSource, lake: Lake) -> None:
    a_source = source(bucket_name="not-yet")
    with pytest.raises(SourceMissing, match=r"no bucket 'not-yet' \(NoSuchBucket"):
        await a_source.open()
    lake._backend.create_bucket("not-yet", "us-east-1")
    assert await keys_of(a_source) == []


async def test_a_name_that_no_bucket_can_have_is_a_missing_source(source: MakeSource) -> None:
    with pytest.raises(SourceMissing, match="'la ke' cannot be the name of a bucket"):
        await source(bucket_name="la ke").open()


SECRETS = ("AKIDLAKE", SECRET, "lake-token", "X-Amz-Signature", "Bearer")


@pytest.mark.parametrize("code", ["InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "AccessDenied", "Odd"])
@pytest.mark.parametrize("status", [400, 403, 500])
async def test_no_message_repeats_a_secret(
    status: int, code: str, source: MakeSource, proxy: FaultyProxy, define: Define
) -> None:
    define("secretive", proxy.url, aws_session_token="lake-token")
    echo = " ".join(SECRETS)
    more = f"<AWSAccessKeyId>AKIDLAKE</AWSAccessKeyId><Token-0>lake-token</Token-0><StringToSign>{echo}</StringToSign>"
    proxy.always = error(status, code, echo, more)
    with pytest.raises((SourceDenied, SourceUnavailable)) as caught:
        await source(aws_conn_id="secretive").open()
    assert not [secret for secret in SECRETS if secret in str(caught.value)]
    assert caught.value.__suppress_context__, "a traceback would show the text of botocore's error"
    assert caught.value.__cause__ is None
