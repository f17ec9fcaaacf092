"""How long is the event loop held while a prefix of 100,000 objects is listed?

Our source and aiobotocore's own paginator list the same prefix, in turns, in a process that has loaded what a triggerer loads
(the more a process holds, the longer a collection of its garbage halts it). The server is another process and has its pages
ready. A heartbeat of one millisecond runs in the loop; a stall is how much later than that it comes. On a machine that does
other things as well, stalls contain those; so the processor time that this process used between two beats is told beside it.

    make bench-s3_loop_stall ARGS="--objects 100000 --rounds 3"
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from benchmarks.result import Result

ROOT = Path(__file__).parents[1]
BUCKET, PREFIX, PAGE, BEAT = "lake", "orders/", 1000, 0.001
BEGINNING = datetime(2026, 11, 1, tzinfo=timezone.utc)
STEADY, FULL, PEER = "ours, nothing new", "ours, all new", "aiobotocore's paginator"

CONTENTS = (
    "<Contents><Key>orders/2026/11/part-{number:09d}.parquet</Key><LastModified>{stamp:%Y-%m-%dT%H:%M:%S}.000Z</LastModified>"
    "<ETag>&quot;{number:032x}&quot;</ETag><Size>{number}</Size><StorageClass>STANDARD</StorageClass></Contents>"
)
RESULT = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    "<Name>lake</Name><Prefix>orders/</Prefix>{token}<KeyCount>1000</KeyCount><MaxKeys>1000</MaxKeys>"
    "<EncodingType>url</EncodingType><IsTruncated>{truncated}</IsTruncated>{contents}</ListBucketResult>"
)


# ------------------------------------------------------------------------------------------------- the server's process


def render(page: int, pages: int) -> bytes:
    numbers = range(page * PAGE, (page + 1) * PAGE)
    contents = "".join(
        CONTENTS.format(number=number, stamp=BEGINNING + timedelta(seconds=number // 7)) for number in numbers
    )
    more = page + 1 < pages
    token = f"<NextContinuationToken>{page + 1}</NextContinuationToken>" if more else ""
    return RESULT.format(token=token, truncated=str(more).lower(), contents=contents).encode()


async def serve(objects: int) -> None:
    """Answer LIST requests with pages rendered beforehand; print the port when ready."""
    pages = [render(page, objects // PAGE) for page in range(objects // PAGE)]

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                target = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
                body = pages[int(parse_qs(target.partition("?")[2]).get("continuation-token", ["0"])[0])]
                date = format_datetime(datetime.now(timezone.utc), usegmt=True)
                head = f"HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# -------------------------------------------------------------------------------------------------------- measurements


@dataclass
class Run:
    """One listing. Of each heartbeat: how late it came, and the processor time of this process since the last; in ms."""

    objects: int
    seconds: float
    late: list[float]
    used: list[float]

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.late, n=100, method="inclusive")[98] if len(self.late) > 1 else self.late[0]


class Heartbeat:
    """A timer of the loop that is set again whenever it goes off; what it notes is how long the loop was held."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.loop = asyncio.get_running_loop()
        self.set()

    def set(self) -> None:
        self.begun, self.used = time.perf_counter(), time.process_time()
        self.timer = self.loop.call_later(BEAT, self.beat)

    def beat(self) -> None:
        self.run.late.append((time.perf_counter() - self.begun - BEAT) * 1000)
        self.run.used.append((time.process_time() - self.used) * 1000)
        self.set()


async def measure(work: Callable[[], Awaitable[int]]) -> Run:
    gc.collect()
    run = Run(0, 0.0, [], [])
    heartbeat = Heartbeat(run)
    begun = time.perf_counter()
    run.objects = await work()
    run.seconds = time.perf_counter() - begun
    await asyncio.sleep(5 * BEAT)  # a stall at the very end is noted by the beat after it
    heartbeat.timer.cancel()
    return run


async def nothing() -> int:
    await asyncio.sleep(1)
    return 0


def ours(source: Any, low: datetime | None) -> Callable[[], Awaitable[int]]:
    async def work() -> int:
        scan = await source.open()
        async for _ in scan.pages(low, scan.now + timedelta(days=36500)):
            pass
        return int(scan.listed)

    return work


def paginator(client: Any) -> Callable[[], Awaitable[int]]:
    async def work() -> int:
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=PREFIX)
        return sum([len(page["Contents"]) async for page in pages])

    return work


async def compare(port: int, rounds: int) -> dict[str, list[Run]]:
    from aiobotocore.session import get_session

    from airflow_state_watchers.sources.s3 import S3Source

    endpoint = f"http://127.0.0.1:{port}"
    extra = {"endpoint_url": endpoint, "region_name": "us-east-1"}
    os.environ["AIRFLOW_CONN_BENCH"] = json.dumps(
        {"conn_type": "aws", "login": "AKIDBENCH", "password": "not-a-secret", "extra": extra}
    )
    source = S3Source(BUCKET, prefix=PREFIX, aws_conn_id="bench")
    session = get_session()
    session.set_credentials("a", "b")
    runs: dict[str, list[Run]] = {"nothing at all": [await measure(nothing)]}

    async def first_look() -> int:
        await source.open()
        return PAGE

    runs["ours, making the client"] = [await measure(first_look)]
    async with session.create_client("s3", region_name="us-east-1", endpoint_url=endpoint) as client:
        works = {
            STEADY: ours(source, datetime(2100, 1, 1, tzinfo=timezone.utc)),
            FULL: ours(source, None),
            PEER: paginator(client),
        }
        for _ in range(rounds):
            for name, work in works.items():
                runs.setdefault(name, []).append(await measure(work))
    await source.aclose()
    return runs


# --------------------------------------------------------------------------------------------------------- the results


def summarize(runs: dict[str, list[Run]], objects: int) -> Result:
    """Take medians over the rounds."""
    result = Result("s3_loop_stall", {"objects listed": objects, "load of the machine": round(os.getloadavg()[0], 1)})
    for name, each in runs.items():
        result.figures[f"{name}: longest stall, ms"] = statistics.median(max(run.late) for run in each)
        result.figures[f"{name}: p99 stall, ms"] = statistics.median(run.p99 for run in each)
        result.figures[f"{name}: most processor time between beats, ms"] = statistics.median(
            max(run.used) for run in each
        )
        if each[0].objects >= objects:
            result.figures[f"{name}: objects/s"] = statistics.median(run.objects / run.seconds for run in each)
    for name in (STEADY, FULL):
        for what in ("longest stall, ms", "p99 stall, ms", "most processor time between beats, ms"):
            ratio = result.figures[f"{PEER}: {what}"] / result.figures[f"{name}: {what}"]
            result.ratios[f"{what[:-4]}: {PEER} over {name}"] = ratio
        ratio = result.figures[f"{name}: objects/s"] / result.figures[f"{PEER}: objects/s"]
        result.ratios[f"objects/s: {name} over {PEER}"] = ratio
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=100_000, help="a multiple of 1,000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(serve(arguments.objects))
        return
    command = [sys.executable, "-m", "benchmarks.s3_loop_stall", "--serve", "--objects", str(arguments.objects)]
    with (
        tempfile.TemporaryDirectory() as home,
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server,
    ):
        try:
            os.environ["AIRFLOW_HOME"] = home
            import airflow.jobs.triggerer_job_runner  # noqa: F401  (what a triggerer has loaded)

            assert server.stdout is not None
            port = int(server.stdout.readline())
            summarize(asyncio.run(compare(port, arguments.rounds)), arguments.objects).finish()
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
