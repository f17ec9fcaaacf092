"""How the client comes by its connection and keeps its credentials."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from aiobotocore.credentials import AioRefreshableCredentials
from airflow.jobs.triggerer_job_runner import TriggerCommsDecoder
from airflow.providers.amazon.aws.hooks.base_aws import BaseSessionFactory
from airflow.sdk.exceptions import ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import ConnectionResult, ErrorResponse, _RequestFrame, _ResponseFrame

from airflow_state_watchers.exceptions import SourceDenied, SourceMissing
from airflow_state_watchers.sources.s3_client import _refresh_in_thread
from tests.sources.conftest import Define, Lake, MakeSource, client_of
from tests.sources.faulty_proxy import FaultyProxy


class Supervisor:
    """Answers a triggerer's questions as its parent process does, on the other end of a socket."""

    def __init__(self) -> None:
        self.connections: dict[str, ConnectionResult] = {}
        self.refuses = False
        self.asked: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while length := int.from_bytes(await reader.readexactly(4), "big"):
            frame = msgspec.msgpack.decode(await reader.readexactly(length), type=_RequestFrame)
            body = frame.body or {}
            answer: dict[str, Any] | None = None
            if body.get("type") == "GetConnection":
                self.asked.append(body["conn_id"])
                answer = self._connection(body["conn_id"]).model_dump(by_alias=True)
            writer.write(_ResponseFrame(id=frame.id, body=answer).as_bytes())

    def _connection(self, conn_id: str) -> ConnectionResult | ErrorResponse:
        if self.refuses:
            return ErrorResponse(error=ErrorType.PERMISSION_DENIED)
        return self.connections.get(conn_id) or ErrorResponse(error=ErrorType.CONNECTION_NOT_FOUND)


@pytest.fixture
async def supervisor(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Supervisor]:
    """Make this process ask for connections as a triggerer does: over a socket that its event loop reads."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    their_reader, their_writer = await asyncio.open_connection(sock=theirs)
    comms = TriggerCommsDecoder(async_writer=writer, async_reader=reader, socket=ours)
    await comms.start_reader()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", comms, raising=False)
    supervisor = Supervisor()
    serving = asyncio.create_task(supervisor.serve(their_reader, their_writer))
    yield supervisor
    assert comms._reader_task is not None
    for task in (serving, comms._reader_task):
        task.cancel()
    await asyncio.gather(serving, comms._reader_task, return_exceptions=True)
    for stream in (writer, their_writer):
        stream.close()
        await stream.wait_closed()


async def test_a_triggerer_gets_the_connection_without_waiting_for_itself(
    supervisor: Supervisor, lake: Lake, source: MakeSource, proxy: FaultyProxy
) -> None:
    lake.put("a")
    extra = json.dumps({"endpoint_url": proxy.url, "region_name": "us-east-1"})
    nowhere: dict[str, Any] = {"host": None, "schema": None, "port": None}
    connection = ConnectionResult(
        conn_id="remote", conn_type="aws", login="AKIDREMOTE", password="p", extra=extra, **nowhere
    )
    a_source = source(aws_conn_id="remote", timeout=10)
    with pytest.raises(SourceMissing, match="no connection 'remote'"):
        await a_source.open()
    supervisor.connections["remote"] = connection
    scan = await a_source.open()
    await a_source.open()
    assert (scan.listed, proxy.keys) == (0, ["AKIDREMOTE"] * 2)
    assert supervisor.asked == ["remote"] * 2, "asked once for a failure and once for a client"


async def test_a_connection_that_airflow_refuses_is_denied(supervisor: Supervisor, source: MakeSource) -> None:
    supervisor.refuses = True
    with pytest.raises(SourceDenied, match="Airflow does not let this triggerer read connection 'remote'"):
        await source(aws_conn_id="remote").open()


async def test_a_role_is_assumed_and_its_credentials_are_renewed_in_a_thread(
    source: MakeSource, proxy: FaultyProxy, define: Define, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    assume = BaseSessionFactory._refresh_credentials

    def noted(factory: BaseSessionFactory) -> dict[str, Any]:
        threads.append(threading.get_ident())
        return assume(factory)

    monkeypatch.setattr(BaseSessionFactory, "_refresh_credentials", noted)
    a_source = source(aws_conn_id=define("role", proxy.url, **role_at(proxy)))
    await a_source.open()
    assert [key[:4] for key in proxy.keys] == ["AKID", "ASIA"], "the connection's key for STS, the role's for S3"
    client_of(a_source)._request_signer._credentials._expiry_time = datetime.now(timezone.utc)
    await a_source.open()
    assert [key[:4] for key in proxy.keys] == ["AKID", "ASIA"] * 2
    assert len(threads) == 2
    assert threading.get_ident() not in threads


async def test_a_role_that_is_refused_is_denied(source: MakeSource, proxy: FaultyProxy, define: Define) -> None:
    define("role", proxy.url, **role_at(proxy))
    refusal = "<Error><Code>AccessDenied</Code><Message>AKIDLAKE may not</Message></Error>"
    proxy.faults = [
        lambda answer: replace(answer, status=403, body=f"<ErrorResponse>{refusal}</ErrorResponse>".encode())
    ]
    with pytest.raises(SourceDenied, match=r"AssumeRole is denied to connection 'role' \(AccessDenied, HTTP 403"):
        await source(aws_conn_id="role").open()


def role_at(proxy: FaultyProxy) -> dict[str, Any]:
    """Return the extra of a connection that assumes a role."""
    return {
        "role_arn": "arn:aws:iam::123456789012:role/reader",
        "service_config": {"sts": {"endpoint_url": proxy.url}},
    }


async def test_credentials_that_refresh_by_a_blocking_call_do_it_in_a_thread() -> None:
    threads: list[int] = []

    def refresh() -> dict[str, str]:
        threads.append(threading.get_ident())
        expiry = (datetime.now(timezone.utc) + timedelta(hours=1)).isoformat()
        return {"access_key": "new", "secret_key": "s", "token": "t", "expiry_time": expiry}

    credentials = AioRefreshableCredentials(
        "old", "s", "t", datetime.now(timezone.utc), refresh_using=refresh, method="sts-assume-role"
    )
    _refresh_in_thread(credentials)
    assert (await credentials.get_frozen_credentials()).access_key == "new"
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_credentials_that_need_no_thread_are_left_alone() -> None:
    async def refresh() -> dict[str, str]:
        raise AssertionError

    credentials = AioRefreshableCredentials(
        "old", "s", "t", datetime.now(timezone.utc), refresh_using=refresh, method="iam-role"
    )
    _refresh_in_thread(credentials)
    assert credentials._refresh_using is refresh
    _refresh_in_thread(None)
