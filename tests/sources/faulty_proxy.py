"""A server between a client and an S3 server that breaks the answers it is told to break."""

from __future__ import annotations

import asyncio
import http.client
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType

ERROR = '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message>{more}</Error>'


@dataclass(frozen=True)
class Answer:
    """A response on its way back. ``cut``: reset the connection after this many bytes of the body."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    cut: int | None = None

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


def silence(answer: Answer) -> Answer | None:
    """Never answer."""
    return None


@dataclass
class FaultyProxy:
    """``faults`` are used up one by one by the requests to come; then ``always``, if there is one."""

    upstream: tuple[str, int]
    faults: list[Fault] = field(default_factory=list)
    always: Fault | None = None
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
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> FaultyProxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open)
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
        fault = self.faults.pop(0) if self.faults else self.always
        self.asked.set()
        answer: Answer | None = await asyncio.to_thread(self._forward, method, target, headers, body)
        if fault is not None and answer is not None:
            answer = fault(answer)
        if answer is None:
            await asyncio.Event().wait()  # until the proxy is closed
            return
        lines = [f"HTTP/1.1 {answer.status} {http.client.responses[answer.status]}"]
        lines += [f"{name}: {value}" for name, value in answer.without("content-length").headers]
        lines += [f"Content-Length: {len(answer.body)}", "", ""]
        writer.write("\r\n".join(lines).encode("latin-1") + answer.body[: answer.cut])
        await writer.drain()
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
