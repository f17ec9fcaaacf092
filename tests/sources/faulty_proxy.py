"""A server between a client and an S3 server that breaks the answers it is told to break."""

from __future__ import annotations

import asyncio
import http.client
import re
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from urllib.parse import unquote

ERROR = '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message>{more}</Error>'


@dataclass(frozen=True)
class Answer:
    """A response on its way back. ``cut``: reset the connection after this many bytes of the body; or send no more (``stalls``)."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    cut: int | None = None
    stalls: bool = False

    def without(self, header: str) -> Answer:
        return replace(self, headers=tuple(pair for pair in self.headers if pair[0].lower() != header.lower()))

    def with_body(self, body: bytes) -> Answer:
        return replace(self, body=body)


Fault = Callable[[Answer], Answer | None]
"""What to make of an answer; ``None``: never answer."""


def error(status: int, code: str, message: str = "", more: str = "") -> Fault:
    """Answer with an error of S3's instead."""
    return lambda answer: replace(
        answer, status=status, body=ERROR.format(code=code, message=message, more=more).encode()
    )


def reset(after: int) -> Fault:
    """Reset the connection after so many bytes of the body, whose length has been announced."""
    return lambda answer: replace(answer, cut=after)


def stall(after: int) -> Fault:
    """Send so many bytes of the body and no more."""
    return lambda answer: replace(answer, cut=after, stalls=True)


def silence(answer: Answer) -> Answer | None:
    """Never answer."""
    return None


Choose = Callable[[str], Fault | None]
"""Says what is to become of the answer to a request, by its target; ``None``: nothing. Called when the request comes in, before
it is passed on."""


@dataclass
class OnPage:
    """Chooses the n-th page of each listing of objects, from 1 on; also all ``later`` ones, if wanted."""

    page: int
    fault: Fault
    later: bool = False
    _tokens: list[str] = field(default_factory=list)

    def __call__(self, target: str) -> Fault | None:
        if "list-type=2" not in target:
            return None
        token = re.search(r"continuation-token=([^&]*)", target)
        if token is None:
            self._tokens.clear()
        elif token[1] not in self._tokens:
            self._tokens.append(token[1])
        page = 1 if token is None else self._tokens.index(token[1]) + 2
        return self.fault if page == self.page or (self.later and page > self.page) else None


def on_prefix(prefix: str, fault: Fault) -> Choose:
    """Choose the listings of objects with just this prefix."""
    return lambda target: fault if "list-type=2" in target and f"prefix={prefix}&" in unquote(target) else None


def on_uploads(fault: Fault) -> Choose:
    """Choose the listings of uploads in progress."""
    return lambda target: fault if re.search(r"[?&]uploads(=|&|$)", target) else None


@dataclass
class FaultyProxy:
    """``choose`` is asked first; the other ``faults`` are used up one by one by the requests to come; then ``always``, if there
    is one. Every answer goes through ``dress`` before that. With ``tls`` it speaks HTTPS."""

    upstream: tuple[str, int]
    faults: list[Fault] = field(default_factory=list)
    always: Fault | None = None
    choose: Choose | None = None
    dress: Callable[[Answer], Answer] | None = None
    tls: ssl.SSLContext | None = None
    requests: list[str] = field(default_factory=list)
    """The request targets seen, as on the wire."""
    keys: list[str] = field(default_factory=list)
    """The access keys with which the requests were signed."""
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by each request."""
    failures: list[Exception] = field(default_factory=list)
    _server: asyncio.Server | None = None
    _open: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> FaultyProxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self.tls)
        return self

    async def hang_up(self) -> None:
        """Close the connections that are open now."""
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        await self.hang_up()
        await self._server.wait_closed()
        assert not self.failures, "a fault of the test's own is broken"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    await self._serve(await reader.readuntil(b"\r\n\r\n"), reader, writer)
        except asyncio.CancelledError:
            pass  # the proxy closes
        except Exception as failure:
            self.failures.append(failure)
        finally:
            self._open.discard(task)
            writer.close()

    async def _serve(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, target, _ = head.decode("ascii").split(" ", 2)
        headers = dict(_headers(head))
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.requests.append(target)
        self.keys.append(headers.get("authorization", "").partition("Credential=")[2].partition("/")[0])
        # Taken on arrival: a request that is given up must not leave its fault to the next one.
        fault = self.choose(target) if self.choose else None
        if fault is None:
            fault = self.faults.pop(0) if self.faults else self.always
        self.asked.set()
        whole = await asyncio.to_thread(self._forward, method, target, headers, body)
        whole = self.dress(whole) if self.dress else whole
        answer = fault(whole) if fault else whole
        if answer is None:
            await asyncio.Event().wait()  # until the proxy is closed
            return
        lines = [f"HTTP/1.1 {answer.status} {http.client.responses[answer.status]}"]
        lines += [f"{name}: {value}" for name, value in answer.without("content-length").headers]
        lines += [f"Content-Length: {len(answer.body)}", "", ""]
        writer.write("\r\n".join(lines).encode("latin-1") + answer.body[: answer.cut])
        await writer.drain()
        if answer.stalls:
            await asyncio.Event().wait()
        if answer.cut is not None:
            connection = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raise ConnectionResetError

    def _forward(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Answer:
        upstream = http.client.HTTPConnection(*self.upstream, timeout=30)
        try:
            upstream.request(method, target, body or None, {**headers, "connection": "close"})
            response = upstream.getresponse()
            kept = [
                pair for pair in response.getheaders() if pair[0].lower() not in ("connection", "transfer-encoding")
            ]
            return Answer(response.status, tuple(kept), response.read())
        finally:
            upstream.close()


def _headers(head: bytes) -> Iterator[tuple[str, str]]:
    for line in head.decode("latin-1").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            yield name.lower(), value.strip()
