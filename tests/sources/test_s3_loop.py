"""What the source does not do to the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from airflow_state_watchers.exceptions import SourceUnavailable
from airflow_state_watchers.sources import s3_client, s3_listing
from tests.sources.conftest import Lake, MakeSource, keys_of, look
from tests.sources.faulty_proxy import FaultyProxy, silence


async def test_what_takes_long_happens_in_threads(
    lake: Lake, source: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, int] = {}

    def noting(name: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def noted(argument: Any) -> Any:
            threads[name] = threading.get_ident()
            return function(argument)

        return noted

    monkeypatch.setattr(s3_client, "build_client", noting("client", s3_client.build_client))
    monkeypatch.setattr(s3_listing, "read_listing", noting("parser", s3_listing.read_listing))
    await look(source())
    assert set(threads) == {"client", "parser"}
    assert threading.get_ident() not in threads.values()


async def test_botocore_does_not_read_the_body_again(
    lake: Lake, source: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    from botocore import handlers, parsers

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the whole body is parsed on the event loop")

    lake.put("a")
    monkeypatch.setattr(handlers.ETree, "XMLParser", refuse)
    monkeypatch.setattr(parsers.ETree, "XMLParser", refuse)
    assert await keys_of(source()) == ["a"]


@pytest.mark.parametrize("page", [0, 1])
async def test_cancellation_passes(
    page: int, lake: Lake, source: MakeSource, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "2")
    for key in "abcd":
        lake.put(key)
    a_source = source()
    await look(a_source)
    proxy.requests.clear()
    proxy.faults = [lambda answer: answer] * page + [silence]
    task = asyncio.create_task(look(a_source))
    while len(proxy.requests) <= page:
        proxy.asked.clear()
        await proxy.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await keys_of(a_source) == list("abcd"), "and the source is as good as before"


async def test_a_client_that_is_not_made_in_time_is_unavailable(
    source: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    monkeypatch.setattr(s3_client, "build_client", lambda place: release.wait())
    try:
        with pytest.raises(SourceUnavailable, match=r"connection 'lake_conn' within 0.05 s"):
            await source(timeout=0.05).open()
    finally:
        release.set()
