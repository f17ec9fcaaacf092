"""A few connections to one database for all watchers of an event loop, through Airflow's own hook."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from airflow_state_watchers.exceptions import SourceUnavailable
from airflow_state_watchers.sources.pg_deadline import deadline
from airflow_state_watchers.sources.sql_line import Line, Rows
from airflow_state_watchers.sources.sql_statements import Query

KEEP = 300.0
"""A connection that nobody needed for so many seconds is closed."""

LIFE = 3600.0
"""A connection that is older is not used again: the Airflow connection may have been changed since."""

HANG = 900.0
"""A statement that hangs keeps its place among the connections for so long at most: a database that cannot answer is not given
one more at every poll."""


class Lines:
    """At most ``size`` connections, made by ``make``. A statement that hangs is left to itself, together with its connection."""

    def __init__(self, make: Callable[[], Line], size: int) -> None:
        self._make, self._size = make, size
        self._slots = asyncio.Semaphore(size)
        self._idle: list[tuple[Line, float, float]] = []
        """Each with when it was made and when it was given back; the one that was used last stands last."""
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def run(self, query: Query, timeout: float) -> Rows:
        """Run a statement. ``timeout`` is for the wait and for the answer, each. Raises what the driver raises."""
        await self._wait_for_slot(timeout)
        line, since = self._take()
        call = line.call(query)
        try:
            await asyncio.wait({call}, timeout=timeout)
        except BaseException:
            self._leave(line, call)
            raise
        if not call.done():
            self._leave(line, call)
            raise SourceUnavailable(
                f"no answer within {timeout:g} s. Is there an index on the watermark column, or a lock on the table? "
                "See also [state_watchers] source_timeout"
            )
        self._slots.release()
        if call.exception() is None:
            self._give_back(line, since)
        else:
            # What has broken this one may have broken all of them.
            line.end()
            self._close_idle()
        return call.result()

    def close(self) -> None:
        """Close what is not in use; the rest is closed when it comes back."""
        self._closed = True
        self._close_idle()

    async def _wait_for_slot(self, timeout: float) -> None:
        try:
            async with deadline(timeout):
                await self._slots.acquire()
        except (TimeoutError, asyncio.TimeoutError):
            raise SourceUnavailable(
                f"all {self._size} connections were in use for {timeout:g} s, perhaps by statements that hang. See what the "
                "database is doing, raise [state_watchers] connections_per_database, or let fewer watchers poll as often"
            ) from None

    def _take(self) -> tuple[Line, float]:
        now = _now()
        while self._idle:
            line, since, _ = self._idle.pop()
            if now - since < LIFE:
                return line, since
            line.end()
        return self._make(), now

    def _give_back(self, line: Line, since: float) -> None:
        if self._closed:
            line.end()
            return
        self._idle.append((line, since, _now()))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(KEEP, self._close_old)

    def _close_old(self) -> None:
        self._timer = None
        while self._idle and self._idle[0][2] + KEEP <= _now():
            self._idle.pop(0)[0].end()
        if self._idle:
            wait = self._idle[0][2] + KEEP - _now()
            self._timer = asyncio.get_running_loop().call_later(wait, self._close_old)

    def _close_idle(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._idle:
            self._idle.pop()[0].end()

    def _leave(self, line: Line, call: asyncio.Future[Rows]) -> None:
        """Wait no longer for a statement; its slot is free when it has ended, or after :data:`HANG`."""
        slot = _Slot(self._slots)
        timer = asyncio.get_running_loop().call_later(HANG, slot.free)

        def ended(call: asyncio.Future[Rows]) -> None:
            if not call.cancelled():
                call.exception()  # nobody else asks for it
            timer.cancel()
            slot.free()

        call.add_done_callback(ended)
        line.end()
        line.interrupt()


class _Slot:
    """One of the slots, to be given back once by whoever comes first."""

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self._slots, self._is_free = slots, False

    def free(self) -> None:
        if not self._is_free:
            self._is_free = True
            self._slots.release()


class SharedLines:
    """The connections of one event loop, by the Airflow connection and the hook's parameters."""

    _of_loop: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, SharedLines]] = WeakKeyDictionary()

    def __init__(self) -> None:
        self._lines: dict[str, tuple[Lines, int]] = {}

    @classmethod
    def here(cls) -> SharedLines:
        return cls._of_loop.setdefault(asyncio.get_running_loop(), cls())

    def lease(self, key: str, make: Callable[[], Line], size: int) -> Lines:
        """Return what a key stands for. Whoever leases it gives it back by :meth:`release`; ``size`` counts for the first."""
        lines, users = self._lines.get(key) or (Lines(make, size), 0)
        self._lines[key] = lines, users + 1
        return lines

    def release(self, key: str) -> None:
        """Give it back; the last one closes it."""
        lines, users = self._lines.pop(key)
        if users > 1:
            self._lines[key] = lines, users - 1
        else:
            lines.close()


def key_of(conn_id: str, hook_params: Mapping[str, Any], dialect: str) -> str:
    return json.dumps([conn_id, dict(hook_params), dialect], sort_keys=True, default=repr)


def _now() -> float:
    return asyncio.get_running_loop().time()
