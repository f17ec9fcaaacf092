"""The processes of one Airflow: started, stopped, killed, frozen, each by itself."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM

from airflow_state_watchers.demo.processes import KeptProcess, ProcessDied, Scope, tail

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "api-server": ("api-server", "--host", "127.0.0.1", "--workers", "1"),
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
    "triggerer-2": ("triggerer", "--skip-serve-logs"),
}
DEFAULT = ("api-server", "scheduler", "dag-processor", "triggerer")
JOB_TYPES: Mapping[str, str] = {
    "scheduler": "SchedulerJob",
    "dag-processor": "DagProcessorJob",
    "triggerer": "TriggererJob",
    "triggerer-2": "TriggererJob",
}


class Pieces:
    """Named processes with one environment.

    A piece is *expected* from its start until it is stopped or killed; :meth:`check` raises when an expected one has
    ended.
    """

    def __init__(self, home: Path, env: Mapping[str, str]) -> None:
        self._home = home
        self._env = env
        self._logs = home / "output"
        self._logs.mkdir(exist_ok=True)
        self._processes: dict[str, KeptProcess] = {}
        self._replaced: list[KeptProcess] = []
        self._expected: set[str] = set()
        self.started: dict[str, datetime] = {}
        """When each piece was last started."""

    @property
    def expected(self) -> frozenset[str]:
        return frozenset(self._expected)

    def run(self, name: str, *arguments: str, timeout: float = 300) -> None:
        """Run an Airflow command to its end. Raises :class:`ProcessDied` when it fails."""
        command = [sys.executable, "-m", "airflow", *arguments]
        with KeptProcess(name, command, log=self.log(name), env=self._env) as process:
            if process.wait(timeout):
                raise ProcessDied(f"airflow {' '.join(arguments)}: exit code {process.returncode}\n{tail(process.log)}")

    def start(self, name: str) -> None:
        """Start a piece; does not wait until it is ready. What an earlier one of this name left behind is let alone."""
        earlier = self._processes.pop(name, None)
        if earlier is not None:
            if earlier.poll() is None:
                self._processes[name] = earlier
                raise RuntimeError(f"{name} still runs (pid {earlier.pid})")
            self._replaced.append(earlier)
        self.started[name] = datetime.now(timezone.utc)
        command = [sys.executable, "-m", "airflow", *COMMANDS[name]]
        self._processes[name] = KeptProcess(name, command, log=self.log(name), env=self._env, cwd=self._home)
        self._expected.add(name)

    def stop(self, name: str, *, timeout: float = 60) -> int:
        """Ask a piece to end (SIGTERM) and wait until nothing of it is left; returns its exit code.

        Raises ``TimeoutError``.
        """
        self._expected.discard(name)
        process = self._processes[name]
        process.signal(SIGTERM)
        code = process.wait(timeout)
        process.close(patience=10)
        return code

    def kill(self, name: str, scope: Scope = "tree") -> list[int]:
        """``kill -9``; returns the pids that were killed.

        - ``"tree"``: the piece and all its descendants in one instant, as when the machine loses power.
        - ``"main"``: the process alone. A triggerer's runner, a scheduler's workers and tasks are left, as after a real
          ``kill -9``, and end when they notice, or after half a minute.
        - ``"children"``: only the descendants, such as a triggerer's runner; then see :meth:`wait_for_exit`.
        """
        self._expected.discard(name)
        process = self._processes[name]
        killed = process.signal(SIGKILL, scope)
        if scope != "children":
            process.wait(30)
        if scope == "tree":
            process.close()
        return killed

    def wait_for_exit(self, name: str, *, timeout: float = 60) -> int:
        """Wait until a piece has ended by itself and return its exit code. Raises ``TimeoutError``."""
        self._expected.discard(name)
        return self._processes[name].wait(timeout)

    def freeze(self, name: str) -> None:
        """Stop the clock for a piece and its descendants (SIGSTOP): it lives, holds what it holds, and does nothing."""
        self._processes[name].signal(SIGSTOP, "tree")

    def thaw(self, name: str) -> None:
        self._processes[name].signal(SIGCONT, "tree")

    def pids(self, name: str) -> list[int]:
        """Return the pid of a piece, first, and those of its living descendants."""
        return self._processes[name].pids()

    def check(self) -> None:
        """Raise :class:`ProcessDied` if a piece has ended that nobody stopped or killed."""
        for name in sorted(self._expected):
            self._processes[name].check()

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def tails(self, names: Iterable[str] | None = None, lines: int = 12) -> str:
        """Return the ends of the logs, for an error message."""
        return "\n".join(f"--- {name}:\n{tail(self.log(name), lines)}" for name in names or sorted(self._processes))

    def close(self) -> None:
        """Kill what is left, at once."""
        self._expected.clear()
        everything = [*self._processes.values(), *self._replaced]
        for process in everything:
            if process.poll() is None:
                process.signal(SIGKILL, "tree")
        for process in everything:
            process.close()
