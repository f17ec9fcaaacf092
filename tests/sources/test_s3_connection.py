"""What the source makes of an Airflow connection, and when it asks for it again."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_state_watchers.exceptions import SourceDenied, SourceMissing, SourceUnavailable
from airflow_state_watchers.sources import s3_client
from airflow_state_watchers.sources.s3_place import S3Place
from tests.sources.conftest import FAR, SECRET, Define, Lake, MakeSource, client_of, keys_of, look
from tests.sources.faulty_proxy import FaultyProxy, error


async def test_an_unknown_connection_is_missing_until_it_is_there(
    lake: Lake, source: MakeSource, proxy: FaultyProxy, define: Define
) -> None:
    lake.put("a")
    a_source = source(aws_conn_id="later")
    for _ in range(2):
        with pytest.raises(SourceMissing, match=r"no connection 'later'.*aws_conn_id"):
            await a_source.open()
    define("later", proxy.url)
    assert await keys_of(a_source) == ["a"]


async def test_a_machine_without_credentials_is_denied(source: MakeSource) -> None:
    for conn_id, name in [(None, "aws_conn_id=None"), ("aws_default", "'aws_default'")]:
        with pytest.raises(SourceDenied, match=f"no credentials in .*{name}"):
            await source(aws_conn_id=conn_id).open()


async def test_a_connection_that_makes_no_client_says_so_without_its_content(
    source: MakeSource, define: Define
) -> None:
    define("broken", f"no-scheme-{SECRET}")
    with pytest.raises(SourceDenied, match=r"no S3 client can be made of connection 'broken' \(ValueError\)") as caught:
        await source(aws_conn_id="broken").open()
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__, "a traceback would show the endpoint as it is in the connection"


async def test_a_wrong_option_of_botocore_is_named(source: MakeSource) -> None:
    with pytest.raises(SourceDenied, match=r"botocore_config .*'no_such_option'"):
        await source(botocore_config={"no_such_option": 1}).open()


async def test_an_endpoint_that_nobody_listens_at_is_unavailable_until_the_connection_is_mended(
    lake: Lake, source: MakeSource, proxy: FaultyProxy, define: Define
) -> None:
    lake.put("a")
    define("moving", "http://127.0.0.1:1")
    a_source = source(aws_conn_id="moving")
    with pytest.raises(SourceUnavailable, match=r"cannot connect .*ECONNREFUSED.*'moving'"):
        await a_source.open()
    define("moving", proxy.url)
    assert await keys_of(a_source) == ["a"]


@pytest.mark.parametrize("code", ["ExpiredToken", "ExpiredTokenException", "InvalidAccessKeyId", "InvalidToken"])
async def test_credentials_that_ran_out_are_read_again_in_the_middle_of_a_listing(
    code: str, lake: Lake, source: MakeSource, proxy: FaultyProxy, define: Define, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "2")
    for key in "abcd":
        lake.put(key)
    define("rotated", proxy.url, login="AKIDOLD")
    scan = await source(aws_conn_id="rotated").open()
    define("rotated", proxy.url, login="AKIDNEW")
    proxy.faults = [error(403, code)]
    found = [item.position.tiebreak async for items in scan.pages(None, FAR) for item in items]
    assert found == list("abcd")
    assert proxy.keys == ["AKIDOLD", "AKIDOLD", "AKIDNEW"]


async def test_credentials_just_read_are_not_read_again_at_once(source: MakeSource, proxy: FaultyProxy) -> None:
    proxy.always = error(400, "ExpiredToken")
    with pytest.raises(SourceDenied):
        await source().open()
    assert len(proxy.requests) == 1


async def test_a_client_is_made_once_and_again_after_aclose(
    source: MakeSource, monkeypatch: pytest.MonkeyPatch, lake: Lake
) -> None:
    built: list[Any] = []
    build = s3_client.build_client

    def noted(place: S3Place) -> Any:
        built.append(build(place))
        return built[-1]

    monkeypatch.setattr(s3_client, "build_client", noted)
    a_source = source()
    for _ in range(3):
        await look(a_source)
    assert len(built) == 1
    await a_source.aclose()
    await a_source.aclose()
    await look(a_source)
    assert len(built) == 2


async def test_the_connections_own_botocore_options_count_and_the_arguments_win(
    source: MakeSource, proxy: FaultyProxy, define: Define
) -> None:
    proxy.always = error(503, "SlowDown")
    once, twice = ({"retries": {"mode": "standard", "total_max_attempts": n}} for n in (1, 2))
    define("tuned", proxy.url, config_kwargs=once)
    for given, tries in [(None, 1), (twice, 2)]:
        proxy.requests.clear()
        with pytest.raises(SourceUnavailable):
            await source(aws_conn_id="tuned", botocore_config=given).open()
        assert len(proxy.requests) == tries


async def test_a_public_bucket_can_be_read_unsigned(lake: Lake, source: MakeSource, proxy: FaultyProxy) -> None:
    lake.put("a")
    assert await keys_of(source(botocore_config={"signature_version": "unsigned"})) == ["a"]
    assert proxy.keys == [""]


async def test_the_region_is_the_arguments_then_the_connections(source: MakeSource, proxy: FaultyProxy) -> None:
    for given, region in [(None, "us-east-1"), ("eu-west-3", "eu-west-3")]:
        a_source = source(region_name=given)
        await a_source.open()
        assert client_of(a_source).meta.region_name == region
