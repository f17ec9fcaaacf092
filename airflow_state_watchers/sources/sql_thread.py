"""A thread of one's own for a driver that blocks: calls one after another, and none of them holds the loop or the exit."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

Result = TypeVar("Result")


class OwnThread:
    """A daemon thread that makes calls in turn. An executor's thread would keep the process waiting for a call that hangs.

    :param at_end: called in the thread, as its last call.
    """

    def __init__(self, name: str, at_end: Callable[[], object]) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._at_end = at_end
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def call(self, function: Callable[[], Result]) -> asyncio.Future[Result]:
        """Make a call. If nobody waits for it any more, it goes on, and what it gives is dropped."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        context = contextvars.copy_context()

        def settle(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def made() -> None:
            result, error = None, None
            try:
                result = context.run(function)
            except Exception as caught:
                error = caught
            with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits
                loop.call_soon_threadsafe(settle, result, error)

        self._calls.put(made)
        return future

    def end(self) -> None:
        """Let the thread end after the calls that it has. Does not wait."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
        with contextlib.suppress(Exception):
            self._at_end()
