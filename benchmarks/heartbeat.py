"""What a piece of work costs its process, and how long it holds the event loop.

A heartbeat of one millisecond runs in the loop; a stall is how much later than that it comes. On a machine that does other
things as well, stalls contain those; so the processor time that this process used between two beats is told beside it, and,
where the kernel counts for how long a thread that could run had no core, the longest stall without that.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import statistics
import sys
import time
from array import array
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

BEAT = 0.001
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
WAITED = Path("/proc/self/schedstat")
"""Of the main thread, which is the loop's: nanoseconds on a core, nanoseconds of waiting for one, turns."""


@dataclass
class Run:
    """One piece of work. Of each beat, in ms: how late it came, the processor time of this process since the last one, and how
    late it came but for waiting for a core."""

    seconds: float = 0.0
    cpu: float = 0.0
    peak: float = 0.0
    """The most memory that the process held during the work, in MB."""
    pages: int = 0
    keys: int = 0
    late: array[float] = field(default_factory=lambda: array("d"))
    used: array[float] = field(default_factory=lambda: array("d"))
    held: array[float] = field(default_factory=lambda: array("d"))

    def figures(self) -> dict[str, float]:
        figures = {"seconds": self.seconds, "CPU seconds": self.cpu, "peak, MB": self.peak}
        if self.pages:
            figures |= {"keys": self.keys, "requests": self.pages, "keys/s": self.keys / self.seconds}
        if self.late:
            figures["longest stall, ms"] = max(self.late)
            figures["p99 stall, ms"] = percentile(self.late, 99)
            figures["most CPU between beats, ms"] = max(self.used)
        if self.held:
            figures["longest wait-free stall, ms"] = max(self.held)
        return figures


def percentile(values: array[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else values[0]


class Heartbeat:
    """A timer of the loop that is set again whenever it goes off; what it notes is how long the loop was held."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.loop = asyncio.get_running_loop()
        self.set()

    def set(self) -> None:
        self.waited = waited()
        self.begun, self.used = time.perf_counter(), time.process_time()
        self.timer = self.loop.call_later(BEAT, self.beat)

    def beat(self) -> None:
        late = (time.perf_counter() - self.begun - BEAT) * 1000
        self.run.late.append(late)
        self.run.used.append((time.process_time() - self.used) * 1000)
        if self.waited is not None:
            self.run.held.append(late - ((waited() or 0) - self.waited))
        self.set()


def waited() -> float | None:
    """Return for how many ms the main thread has waited for a core so far; ``None`` where the kernel does not count it."""
    try:
        return int(WAITED.read_text().split()[1]) / 1e6
    except OSError:
        return None


def settle() -> None:
    """Collect what earlier work has left, and let the peak begin anew at what is held now, where the system can do that."""
    gc.collect()
    with suppress(OSError):
        CLEAR.write_text("5")


@contextmanager
def costing(run: Run) -> Iterator[None]:
    """Note what the block takes."""
    begun, cpu = time.perf_counter(), time.process_time()
    yield
    run.seconds, run.cpu = time.perf_counter() - begun, time.process_time() - cpu
    run.peak = memory(peak=True)


async def measure(work: Callable[[], Awaitable[object]]) -> Run:
    """Do a work of the loop's."""
    run = Run()
    settle()
    heartbeat = Heartbeat(run)
    with costing(run):
        await work()
    await asyncio.sleep(5 * BEAT)  # a stall at the very end is noted by the beat after it
    heartbeat.timer.cancel()
    return run


def measure_without_loop(work: Callable[[], object]) -> Run:
    """Do a work of a process that has no loop."""
    run = Run()
    settle()
    with costing(run):
        work()
    return run


async def idle() -> Run:
    """Let the loop do nothing for a second."""
    return await measure(lambda: asyncio.sleep(1))


def memory(*, peak: bool = False) -> float:
    """Return what this process holds, or the most that it has held, in MB."""
    if STATUS.exists():
        name = "VmHWM:" if peak else "VmRSS:"
        return next(int(line.split()[1]) / 1024 for line in STATUS.read_text().splitlines() if line.startswith(name))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
