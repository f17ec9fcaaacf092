"""An S3 server that does nothing but list, in a process of its own, from objects that it has rendered beforehand.

Each object's XML has the same number of bytes, so a page is one slice of one block, whatever prefix, ``start-after`` or
continuation token it was asked for with. Requests beyond that get an error, never a wrong answer. Paths of the server's own::

    /show?objects=10000&latency-ms=40    show the newest 10,000 alone, and wait before each answer; drops what was added
    /add?n=100                           put 100 more keys at the end
    /served                              {"pages": ..., "keys": ...} since the last time that this was asked
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from urllib.request import urlopen

ROOT = Path(__file__).parents[1]
BUCKET, PREFIX, PAGE = "lake", "orders/", 1000
NEWEST, SPAN = timedelta(hours=2), timedelta(days=100)
FRESH = timedelta(seconds=10), timedelta(minutes=55)
ADDED = timedelta(seconds=5)

CONTENTS = (
    "<Contents><Key>orders/dt%3D{day}/part-{number:09d}.parquet</Key><LastModified>{stamp}.000Z</LastModified>"
    "<ETag>&quot;{number:032x}&quot;</ETag><Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
)
RESULT = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    "<Name>lake</Name><Prefix>{prefix}</Prefix>{token}<KeyCount>{count}</KeyCount><MaxKeys>1000</MaxKeys>"
    "<EncodingType>url</EncodingType><IsTruncated>{truncated}</IsTruncated>"
)
END = b"</ListBucketResult>"
UPLOADS = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<ListMultipartUploadsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    b"<Bucket>lake</Bucket><MaxUploads>1000</MaxUploads><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>"
)
REFUSAL = b"<Error><Code>NotImplemented</Code><Message>This server only lists.</Message></Error>"
KNOWN = {
    "list-type",
    "prefix",
    "encoding-type",
    "continuation-token",
    "start-after",
    "max-keys",
    "fetch-owner",
    "delimiter",
}


class Objects:
    """Keys that grow with time, evenly over ``span``, the newest of them ``newest`` old; only those from ``low`` on show."""

    def __init__(self, total: int, newest: timedelta, span: timedelta) -> None:
        self.total, self.low = total, 0
        self._now = datetime.now(timezone.utc)
        self._days: list[str] = []
        self._block = bytearray()
        first = self._now - newest - span
        for number in range(total):
            self._append(number, first + (number + 1) / total * span)
        self.width = len(self._block) // total

    def __len__(self) -> int:
        return len(self._days)

    def _append(self, number: int, stamp: datetime) -> None:
        when = stamp.isoformat(timespec="seconds")[:19]
        self._days.append(when[:10] if not self._days or self._days[-1] != when[:10] else self._days[-1])
        text = CONTENTS.format(day=when[:10], number=number, stamp=when, size=100_000_000 + number)
        self._block += text.encode()

    def add(self, count: int) -> None:
        for number in range(len(self), len(self) + count):
            self._append(number, datetime.now(timezone.utc) - ADDED)

    def show(self, count: int) -> None:
        """Show the newest ``count`` of the original objects."""
        del self._days[self.total :]
        del self._block[self.total * self.width :]
        self.low = self.total - count

    def key(self, number: int) -> str:
        return f"orders/dt={self._days[number]}/part-{number:09d}.parquet"

    def page(self, prefix: str, after: str, limit: int) -> tuple[int, bool, bytes, str]:
        """Return how many objects there are on a page, whether more follow, their XML, and the last one's key."""
        numbers = range(len(self))
        begin = bisect_left(numbers, prefix, lo=self.low, key=self.key)
        if after >= prefix:
            begin = max(begin, bisect_right(numbers, after, lo=self.low, key=self.key))
        # No key holds the last code point, so this is where the keys with the prefix end.
        end = bisect_left(numbers, prefix + "\U0010ffff", lo=begin, key=self.key)
        last = min(begin + limit, end)
        xml = bytes(memoryview(self._block)[begin * self.width : last * self.width])
        return last - begin, last < end, xml, self.key(last - 1) if last > begin else ""


class Service:
    """Answers requests, and counts what it has listed."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.latency = 0.0
        self.pages = self.keys = 0

    def control(self, path: str, query: dict[str, str]) -> bytes:
        if path == "/add":
            self.objects.add(int(query["n"]))
        elif path == "/show":
            self.objects.show(int(query["objects"]))
            self.latency = float(query["latency-ms"]) / 1000
        answer = {"pages": self.pages, "keys": self.keys}
        if path == "/served":
            self.pages = self.keys = 0
        return json.dumps(answer).encode()

    def answer(self, method: str, target: str) -> tuple[str, list[bytes]]:
        url = urlsplit(target)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        if url.path in ("/add", "/show", "/served"):
            return "200 OK", [self.control(url.path, query)]
        if method == "GET" and "uploads" in query:
            return "200 OK", [UPLOADS]
        if method == "HEAD":
            return "404 Not Found", []  # no object is asked for that exists
        asked = {name for name, value in query.items() if value}
        if method != "GET" or query.get("encoding-type") != "url" or not asked <= KNOWN:
            return "501 Not Implemented", [REFUSAL]
        listing = self.listing(query)
        return ("200 OK", listing) if listing else ("501 Not Implemented", [REFUSAL])

    def listing(self, query: dict[str, str]) -> list[bytes]:
        prefix = query.get("prefix", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        count, more, xml, last = self.objects.page(prefix, after, min(PAGE, int(query.get("max-keys", PAGE))))
        if count and query.get("delimiter"):
            return []
        self.pages += 1
        self.keys += count
        token = f"<NextContinuationToken>{last}</NextContinuationToken>" if more else ""
        head = RESULT.format(prefix=prefix.replace("=", "%3D"), token=token, count=count, truncated=str(more).lower())
        return [head.encode(), xml, END]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                method, target = (await reader.readuntil(b"\r\n\r\n")).decode().split(" ", 2)[:2]
                status, body = self.answer(method, target)
                if target.startswith(f"/{BUCKET}"):
                    await asyncio.sleep(self.latency)
                date = format_datetime(datetime.now(timezone.utc), usegmt=True)
                length = sum(map(len, body))
                head = f"HTTP/1.1 {status}\r\nDate: {date}\r\nContent-Type: application/xml\r\nContent-Length: {length}\r\n\r\n"
                writer.writelines([head.encode(), *body])
                await writer.drain()
        writer.close()


async def serve(total: int, fresh: bool) -> None:
    """Serve; print the port when ready."""
    service = Service(Objects(total, *(FRESH if fresh else (NEWEST, SPAN))))
    server = await asyncio.start_server(service.handle, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# ------------------------------------------------------------------------------------- for those who start and ask it


@contextmanager
def running(total: int, *, fresh: bool = False) -> Iterator[int]:
    """Run a server with so many objects; give its port."""
    command = [sys.executable, "-m", "benchmarks.s3_server", "--objects", str(total), *["--fresh"][: int(fresh)]]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield int(server.stdout.readline())
        finally:
            server.terminate()


def control(port: int, path: str) -> dict[str, Any]:
    """Ask one of the server's own paths."""
    with urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        content: dict[str, Any] = json.load(answer)
        return content


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--objects", type=int)
    parser.add_argument("--fresh", action="store_true")
    arguments = parser.parse_args()
    asyncio.run(serve(arguments.objects, arguments.fresh))
