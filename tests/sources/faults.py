"""The faults of S3 that a watcher has to bear, and how it is seen to do so."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from tests.sources.conftest import SECRET, Lake
from tests.sources.faulty_proxy import Answer, Choose, Fault, error, reset, silence, stall
from tests.sources.watching import Watched

ECHO = f"AKIDLAKE {SECRET} X-Amz-Signature Bearer"
SECRETS = ("AKIDLAKE", SECRET, "X-Amz-Signature", "Bearer")
MOVED = "<Endpoint>lake.s3.eu-west-1.amazonaws.com</Endpoint><Bucket>lake</Bucket>"
STOOD = ["in/1", "in/2", "in/3", "in/4", "in/5", "in/6"]
NEW = ["in/1n", "in/3n", "in/5n"]
"""One of them on each of the three pages."""
TURNS = "<NextContinuationToken>again</NextContinuationToken></ListBucketResult>"


def denied(status: int, code: str, more: str = "") -> Fault:
    return error(status, code, ECHO, more)


def truncated(answer: Answer) -> Answer:
    return answer.with_body(answer.body[: len(answer.body) // 2])


class Again:
    """Gives the first answer it sees to all requests, and says each time that the listing goes on."""

    def __init__(self) -> None:
        self.body = b""

    def __call__(self, answer: Answer) -> Answer:
        if not self.body:
            self.body = answer.body.replace(b"<IsTruncated>false<", b"<IsTruncated>true<")
            if b"NextContinuationToken" not in self.body:
                self.body = self.body.replace(b"</ListBucketResult>", TURNS.encode())
        return replace(answer, status=200, body=self.body)


FAULTS: dict[str, tuple[Callable[[], Fault], str, str]] = {
    "SlowDown": (lambda: denied(503, "SlowDown"), "SourceUnavailable", "cannot answer now (SlowDown, HTTP 503"),
    "500": (lambda: denied(500, "InternalError"), "SourceUnavailable", "HTTP 500"),
    "503": (lambda: denied(503, "ServiceUnavailable"), "SourceUnavailable", "HTTP 503"),
    "truncated XML": (lambda: truncated, "SourceUnavailable", "HTTP 500"),
    "reset mid-page": (lambda: reset(150), "SourceUnavailable", "broke off"),
    "does not advance": (Again, "SourceUnavailable", "does not advance"),
    "ExpiredToken": (lambda: denied(400, "ExpiredToken"), "SourceDenied", "have expired"),
    "AccessDenied": (lambda: denied(403, "AccessDenied"), "SourceDenied", "s3:ListBucket is denied"),
    "NoSuchBucket": (lambda: denied(404, "NoSuchBucket"), "SourceMissing", "no bucket 'lake'"),
    "wrong region": (lambda: denied(301, "PermanentRedirect", MOVED), "SourceMissing", "in another region"),
    "wrong signature": (lambda: denied(403, "SignatureDoesNotMatch"), "SourceDenied", "are not accepted"),
    "hangs": (lambda: silence, "SourceUnavailable", "no whole answer within 0.5 s"),
    "hangs mid-page": (lambda: stall(150), "SourceUnavailable", "no whole answer within 0.5 s"),
}


async def begun(watched: Watched, lake: Lake) -> None:
    """Deliver what stands there, then put what is new."""
    for key in STOOD:
        lake.put(key)
    assert sorted(await watched.poll()) == STOOD
    for key in NEW:
        lake.put(key, at=watched.clock.now())


async def fail(watched: Watched, choose: Choose, kind: str, text: str, *, most: int, times: int = 3) -> None:
    """Poll some times under a fault, and see that nothing moves but the back-off and the health record."""
    hangs = "within" in text
    whole, root = watched.source.calls.place, watched.stored()
    watched.source.calls.place = replace(whole, timeout=0.5 if hangs else whole.timeout)
    watched.proxy.choose = choose
    watched.pauses.clear()
    times = 1 if hangs else times
    for number in range(1, times + 1):
        assert await watched.poll() == []
        assert watched.stored() == root
        assert min(most, 1) <= len(watched.proxy.requests) <= most, "a hot loop"
        health = watched.health
        assert (health["state"], health["consecutive_failures"]) == ("failing", number)
        assert health["last_error"]["kind"] == kind
        assert text in health["last_error"]["message"]
        assert not [secret for secret in SECRETS if secret in json.dumps(health)]
    assert len(watched.pauses) == times
    assert all(pause >= 1.5 * 2**number for number, pause in enumerate(watched.pauses))
    watched.proxy.choose = None
    watched.source.calls.place = whole


async def recovers(watched: Watched, keys: list[str]) -> None:
    assert sorted(await watched.poll()) == keys
    assert watched.health["state"] == "ok"
    assert watched.health["last_error"] is None
    assert await watched.poll() == []
