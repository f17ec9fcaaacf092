"""Poll after poll of one contestant: what each takes of the wall, of the database, of the client and of its event loop.

*Database time* is what pg_stat_statements counts for the contestant's role, planning and executing of every statement, also
``BEGIN`` and ``SET``. It leaves out parsing, the protocol and the start of a session; so, for polls without news, *active*
time is told beside it: how long the database's sessions were busy (pg_stat_database), an upper bound.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from benchmarks.heartbeat import BEAT, Heartbeat, Run, percentile, settle
from benchmarks.sql_table import NEW, Table

FLUSHED = 1.2
"""After so many seconds a session tells pg_stat_database what it did before."""


@dataclass(frozen=True)
class Subject:
    """Who polls: ``poll`` returns how many new rows it found, ``after`` is done after it and not measured."""

    poll: Callable[[], Awaitable[int]]
    in_loop: bool = True
    wait: float = 0.0
    """Seconds after which a new row may be seen."""
    after: Callable[[], object] = lambda: None


@dataclass
class Series:
    """Figures of polls, each of which found ``rows``. Times in ms."""

    rows: int
    wall: array[float] = field(default_factory=lambda: array("d"))
    database: array[float] = field(default_factory=lambda: array("d"))
    cpu: array[float] = field(default_factory=lambda: array("d"))
    statements: float = 0.0
    active: float | None = None
    run: Run = field(default_factory=Run)

    def figures(self) -> dict[str, float]:
        count = len(self.wall)
        figures = {
            "polls": count,
            "wall, ms": percentile(self.wall, 50),
            "p99 wall, ms": percentile(self.wall, 99),
            "database, ms": percentile(self.database, 50),
            "p99 database, ms": percentile(self.database, 99),
            "statements": self.statements / count,
            "CPU, ms": sum(self.cpu) / count,
        }
        if self.active is not None:
            figures["active, ms"] = self.active
        if self.rows:
            figures["rows/s"] = self.rows / figures["wall, ms"] * 1000
        if self.run.late:
            loop = self.run.figures()
            figures |= {name: loop[name] for name in loop if name.endswith((" stall, ms", "beats, ms"))}
        return figures

    async def measure(self, table: Table, subject: Subject) -> None:
        """Measure one poll."""
        database, statements = table.work()
        heartbeat = Heartbeat(self.run) if subject.in_loop else None
        begun, cpu = time.perf_counter(), time.process_time()
        found = await subject.poll()
        self.wall.append((time.perf_counter() - begun) * 1000)
        self.cpu.append((time.process_time() - cpu) * 1000)
        if heartbeat:
            await asyncio.sleep(5 * BEAT)  # a stall at the very end is noted by the beat after it
            heartbeat.timer.cancel()
        after = table.work()
        self.database.append(after[0] - database)
        self.statements += after[1] - statements
        subject.after()
        if found != self.rows:
            raise RuntimeError(f"a poll found {found:,} rows, and not {self.rows:,}")


@dataclass(frozen=True)
class Limits:
    """How long a series is: so many polls, or as many as take so many seconds."""

    quiet: int
    new: int
    seconds: float = 8.0

    def reached(self, series: Series) -> bool:
        polls = self.new if series.rows else self.quiet
        return len(series.wall) >= polls or sum(series.wall) >= self.seconds * 1000


async def quiet(table: Table, subject: Subject, limits: Limits) -> Series:
    """Poll a table in which nothing is new."""
    series = Series(0)
    settle()
    active = await _flushed(table, subject)
    while not limits.reached(series):
        await series.measure(table, subject)
    # The poll that makes the session tell what it did before is at both ends, and so counts once.
    series.active = (await _flushed(table, subject) - active) / (len(series.wall) + 1)
    return series


async def _flushed(table: Table, subject: Subject) -> float:
    await asyncio.sleep(FLUSHED)
    await subject.poll()
    subject.after()
    return table.active()


async def news(table: Table, subject: Subject, limits: Limits, rows: int = NEW) -> Series:
    """Poll a table to which rows were added before each poll."""
    series = Series(rows)
    settle()
    while not limits.reached(series):
        table.add(rows)
        await asyncio.sleep(subject.wait)
        await series.measure(table, subject)
    return series
