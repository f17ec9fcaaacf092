"""A whole watcher meets every fault of S3 on every page: nothing is lost, nothing is doubled, nothing spins, and it says so."""

from __future__ import annotations

import gc
import json
import ssl
from pathlib import Path

import pytest

from airflow_state_watchers.sources import s3_uploads
from airflow_state_watchers.testing import FrozenClock
from tests.sources.certificates import certificate
from tests.sources.conftest import BUCKET, Define, Lake, Watch
from tests.sources.faults import FAULTS, NEW, SECRETS, STOOD, begun, denied, fail, recovers, truncated
from tests.sources.faulty_proxy import Fault, FaultyProxy, OnPage, on_uploads
from tests.sources.watching import watch_pauses, watching

ON_UPLOADS = [name for name in FAULTS if name not in ("does not advance", "AccessDenied")]
TEXT_OF_UPLOADS = {"truncated XML": "list of uploads broke off"}

REFUSALS: dict[str, tuple[Fault, str]] = {
    "AccessDenied": (denied(403, "AccessDenied"), "s3:ListBucketMultipartUploads is denied"),
    "NotImplemented": (denied(501, "NotImplemented"), "does not list uploads (NotImplemented)"),
    "MethodNotAllowed": (denied(405, "MethodNotAllowed"), "does not list uploads (MethodNotAllowed)"),
}


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "3")


@pytest.mark.parametrize("page", [1, 2, 3])
@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_on_a_page(name: str, page: int, lake: Lake, watch: Watch) -> None:
    make, kind, text = FAULTS[name]
    async with watch(lookback=0) as watched:
        await begun(watched, lake)
        # Uploads, the pages, the failed one again with new credentials, the region's question, one more page that stands.
        await fail(watched, OnPage(page, make(), later=name == "does not advance"), kind, text, most=page + 3)
        await recovers(watched, NEW)


@pytest.mark.parametrize("name", ON_UPLOADS)
async def test_a_fault_on_the_list_of_uploads(
    name: str, lake: Lake, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, kind, text = FAULTS[name]
    async with watch(lookback=0) as watched:
        await begun(watched, lake)
        if name == "truncated XML":  # the third in a row is taken for a list that cannot be read at all
            monkeypatch.setattr(s3_uploads, "BROKEN", 4)
        await fail(watched, on_uploads(make()), kind, TEXT_OF_UPLOADS.get(name, text), most=3)
        await recovers(watched, NEW)


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_list_of_uploads_that_is_refused_is_a_note_and_no_failure(
    name: str, lake: Lake, watch: Watch, proxy: FaultyProxy, caplog: pytest.LogCaptureFixture
) -> None:
    fault, text = REFUSALS[name]
    async with watch(lookback=0) as watched:
        await begun(watched, lake)
        proxy.choose = on_uploads(fault)
        assert await watched.poll() == NEW
        for _ in range(3):
            assert await watched.poll() == []
        assert len(proxy.requests) == 3, "uploads are not asked for again at every poll"
        health = watched.health
        assert (health["state"], health["last_error"]) == ("ok", None)
        assert text in health["note"]
        assert not [secret for secret in SECRETS if secret in json.dumps(health)]
        assert [record.levelname for record in caplog.records if text in record.getMessage()] == ["WARNING"]


@pytest.mark.parametrize(
    "fault",
    [truncated, lambda answer: answer.with_body(answer.body.replace(b"</", b"&#1;</", 1))],
    ids=["cut", "U+0001"],
)
async def test_a_list_of_uploads_that_is_never_readable_is_done_without(
    fault: Fault, lake: Lake, watch: Watch, proxy: FaultyProxy
) -> None:
    """An upload whose key XML cannot hold makes it so on servers that do not encode keys, for as long as it is open."""
    async with watch(lookback=0) as watched:
        await begun(watched, lake)
        await fail(watched, on_uploads(fault), "SourceUnavailable", "list of uploads broke off", most=1, times=2)
        proxy.choose = on_uploads(fault)
        assert await watched.poll() == NEW
        assert "the list of multipart uploads cannot be read" in watched.health["note"]
        assert await watched.poll() == []


@pytest.mark.parametrize("page", [1, 3])
@pytest.mark.parametrize("name", ["SlowDown", "truncated XML", "does not advance", "ExpiredToken", "NoSuchBucket"])
async def test_a_fault_on_a_page_of_keys_in_order(name: str, page: int, lake: Lake, watch: Watch) -> None:
    make, kind, text = FAULTS[name]
    async with watch(lookback=0, order="key") as watched:
        for key in STOOD:
            lake.put(key)
        assert await watched.poll() == STOOD
        new = [f"in/7{number}" for number in range(9)]
        for key in new:
            lake.put(key, at=watched.clock.now())
        await fail(watched, OnPage(page, make(), later=name == "does not advance"), kind, text, most=page + 3)
        await recovers(watched, new)


@pytest.mark.parametrize("page", [1, 2])
@pytest.mark.parametrize("name", ["SlowDown", "truncated XML", "does not advance", "ExpiredToken", "NoSuchBucket"])
async def test_a_fault_where_a_poll_begins_with_a_page(name: str, page: int, lake: Lake, watch: Watch) -> None:
    make, kind, text = FAULTS[name]
    async with watch(lookback=0, upload_ttl=0) as watched:
        await begun(watched, lake)
        await fail(watched, OnPage(page, make(), later=name == "does not advance"), kind, text, most=page + 2)
        await recovers(watched, NEW)


@pytest.mark.parametrize("page", [1, 3])
async def test_a_fault_before_the_watcher_has_begun(page: int, lake: Lake, watch: Watch) -> None:
    make, kind, text = FAULTS["SlowDown"]
    async with watch(lookback=0, start="latest") as watched:
        for key in STOOD + NEW:
            lake.put(key)
        await fail(watched, OnPage(page, make()), kind, text, most=page + 2)
        assert watched.stored() is None
        await recovers(watched, [])
        lake.put("in/7", at=watched.clock.now())
        await recovers(watched, ["in/7"])


@pytest.mark.parametrize("name", ["503", "truncated XML", "AccessDenied", "wrong region"])
async def test_a_fault_in_one_of_the_partitions(name: str, lake: Lake, watch: Watch) -> None:
    make, kind, text = FAULTS[name]
    day = "in/2026-11-01/"
    async with watch(lookback=0, date_pattern="%Y-%m-%d/") as watched:
        lake.put(day + "a")
        assert await watched.poll() == [day + "a"]
        new = ["in/2026-10-31/late", day + "b", "in/2026-11-02/early"]
        for key in new:
            lake.put(key, at=watched.clock.now())
        fault = make()
        await fail(
            watched, lambda target: fault if "2026-11-01" in target and "list" in target else None, kind, text, most=12
        )
        await recovers(watched, sorted(new))


@pytest.mark.parametrize("start", ["earliest", "latest"])
async def test_a_bucket_that_is_created_later(start: str, lake: Lake, watch: Watch) -> None:
    async with watch(lookback=0, bucket_name="not-yet", start=start) as watched:
        await fail(watched, lambda target: None, "SourceMissing", "no bucket 'not-yet'", most=3)
        lake.create("not-yet")
        assert await watched.poll() == []
        lake.put("in/a", at=watched.clock.now(), bucket="not-yet")
        await recovers(watched, ["in/a"])


# asyncio of Python 3.10 does not close the transport of a handshake that failed.
@pytest.mark.filterwarnings("ignore:.*_SSLProtocolTransport.__del__:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"], ids=["unknown issuer", "wrong host"])
async def test_a_certificate_that_is_not_trusted(
    address: str, lake: Lake, clock: FrozenClock, define: Define, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, other = certificate(tmp_path / "good.pem", "127.0.0.1"), certificate(tmp_path / "other.pem", address)
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(good.read_bytes() + (other.read_bytes() if address != "127.0.0.1" else b""))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(good)
    async with FaultyProxy(lake.address, tls=tls) as proxy:
        define("lake_conn", proxy.url)
        async with watching(
            proxy, watch_pauses(monkeypatch), clock=clock, bucket_name=BUCKET, lookback=0, verify=str(trusted)
        ) as watched:
            await begun(watched, lake)
            tls.load_cert_chain(other)
            await proxy.hang_up()
            await fail(watched, lambda target: None, "SourceUnavailable", "cannot connect to the S3 endpoint", most=0)
            tls.load_cert_chain(good)
            await recovers(watched, NEW)
    gc.collect()  # so that this is said here and not in another test
