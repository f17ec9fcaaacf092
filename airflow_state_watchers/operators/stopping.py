"""What happens when Airflow tells a running task to stop.

Airflow calls ``on_kill`` inside its handler of SIGTERM, in the middle of whatever the task does, and it does so for a user's
kill as for a worker that is shut down. So nothing is decided there: the task is left by an exception, at a place where that
breaks nothing, and then the server is asked whether this try still runs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_COMMS = "airflow.sdk.execution_time.comms"
"""A request to the supervisor that is left halfway leaves its answer to the next request."""
_OVER = {"failed", "success", "skipped", "removed", "upstream_failed"}


class ToldToStop(BaseException):
    """Airflow has told this task to stop. No ``Exception``: an operator's own error handling must let it through."""

    def __init__(self) -> None:
        super().__init__("Airflow has told this task to stop")


class Stop:
    """Whether this task was told to stop, and whether it may be left here."""

    def __init__(self) -> None:
        self._told = False
        self._held = False

    def tell(self) -> None:
        """Be told, in a signal handler. Raises :class:`ToldToStop` if the task may be left here, or does so later."""
        self._told = True
        if not self._held and not _asks_the_supervisor():
            raise ToldToStop

    def check(self) -> None:
        if self._told:
            raise ToldToStop

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside the block the task is not left: between a submission and the storing of its id."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        self.check()


def _asks_the_supervisor() -> bool:
    frame = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == _COMMS:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def is_over(ti: Any, *, on_clear: str) -> bool | None:
    """Ask the server whether this task ended by other hands, so that nobody will come for its job; ``None``: unknown.

    A try that the server still calls running is stopped with its worker and comes back; one that waits for its retry too. A task
    that was cleared while it ran begins afresh, unless it is to use its job again.
    """
    try:
        states = ti.get_task_states(
            dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id], map_index=_map_index(ti)
        )
        found = list(states.get(ti.run_id, {}).values())
    except Exception:
        return None
    if len(found) != 1:
        return None
    state = str(getattr(found[0], "value", found[0]))
    return state in _OVER or (state == "restarting" and on_clear == "rerun")


def _map_index(ti: Any) -> int | None:
    return None if ti.map_index is None or ti.map_index < 0 else ti.map_index
