"""Processes that never outlive the one that started them, and ports that two runs never share."""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from airflow_state_watchers.demo.keeper import parents

KEEPER = Path(__file__).with_name("keeper.py")
Scope = Literal["main", "children", "tree"]
"""The process itself; what descends from it; both."""

PORTS = range(20_000, 32_000)
"""Below the ephemeral ports, where an outgoing connection might take a chosen port before its server does."""


class ProcessDied(RuntimeError):
    """A process ended that should be running. The message has its exit code and the end of its log."""


class Port:
    """A port of 127.0.0.1 that is ours until :meth:`release` (or this process's end), even if no server listens on it.

    The reservation is a UDP socket bound to the same number: known to every other run of this code at once, and
    nothing to clean up. It is no protection against strangers, who seldom listen in this range.
    """

    def __init__(self) -> None:
        for number in random.sample(PORTS, 200):
            self._reservation = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                self._reservation.bind(("127.0.0.1", number))
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", number))
            except OSError:
                self._reservation.close()
                continue
            self.number = number
            return
        raise OSError(f"no free port on 127.0.0.1 among {PORTS.start}-{PORTS.stop}")

    def release(self) -> None:
        self._reservation.close()


def tail(log: Path, lines: int = 30) -> str:
    """Return the last ``lines`` of a log file, or a word that there are none."""
    if not log.exists():
        return f"({log} does not exist)"
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) or f"({log} is empty)"


def living(pids: Iterable[int]) -> list[int]:
    """Return those of the processes that live. A zombie, which only waits for its parent, does not (on Linux)."""
    alive = parents()
    return [pid for pid in pids if pid in alive]


class KeptProcess:
    """A process under a keeper (see :mod:`~airflow_state_watchers.demo.keeper`).

    When this process ends, however it ends, the kept one and all its descendants are killed within about a second.

    :param log: file that gets the output, appended.
    :param owner: ``(uid, gid)`` to run as, for root only.
    :param orphan_signal: sent first, and followed by five seconds of patience, when everything must end; 0: killed at
      once.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        owner: tuple[int, int] = (0, 0),
        orphan_signal: int = 0,
    ) -> None:
        self.name = name
        self.log = log
        self.returncode: int | None = None
        self._buffer = b""
        self._answered: list[list[str]] = []
        keeper = [sys.executable, "-I", "-S", str(KEEPER), f"{owner[0]}:{owner[1]}", str(int(orphan_signal))]
        with open(log, "ab") as output:
            self._keeper = subprocess.Popen(
                [*keeper, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=env,
                cwd=cwd,
                start_new_session=True,  # a Ctrl-C in the terminal is this process's business alone
                bufsize=0,
            )
        assert self._keeper.stdin
        assert self._keeper.stdout
        self._orders, self._answers = self._keeper.stdin, self._keeper.stdout
        self.pid = int(self._answer("started", timeout=30)[0])

    def __repr__(self) -> str:
        return f"<{self.name} pid={self.pid} returncode={self.poll()}>"

    def poll(self) -> int | None:
        """Return the exit code of the process (negative: the signal that ended it), ``None`` while it runs."""
        self._read(0)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait for the process's end and return its exit code. Raises ``TimeoutError``."""
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} (pid {self.pid}) still runs after {timeout:.0f} s\n{tail(self.log)}")
            self._read(min(0.5, timeout))
        assert self.returncode is not None
        return self.returncode

    def check(self) -> None:
        """Raise :class:`ProcessDied` if the process has ended."""
        if self.poll() is not None:
            raise ProcessDied(f"{self.name} ended with exit code {self.returncode}; {self.log} ends:\n{tail(self.log)}")

    def signal(self, number: int, scope: Scope = "main") -> list[int]:
        """Send a signal and return the pids that got it. SIGKILL to several takes all of them in one instant."""
        return self._order(f"signal {int(number)} {scope}")

    def pids(self) -> list[int]:
        """Return the pid of the process, first while it lives, and those of its living descendants, orphans too."""
        return sorted(self._order("list"), key=lambda pid: (pid != self.pid, pid))

    def close(self, *, patience: float = 0) -> None:
        """Let descendants that outlive the process end by themselves for ``patience`` seconds, then kill what is left.

        When it returns, nothing of the process is left.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            if patience:
                self.poll()
                self._keeper.wait(patience)
        with contextlib.suppress(BrokenPipeError):
            self._orders.close()
        self._keeper.wait(30)
        self.poll()
        self._answers.close()

    def __enter__(self) -> KeptProcess:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def _order(self, order: str) -> list[int]:
        try:
            self._orders.write(f"{order}\n".encode())
            return [int(pid) for pid in self._answer("pids", timeout=30)]
        except (BrokenPipeError, ValueError, EOFError):
            return []  # the keeper has nothing left to keep, and has ended

    def _answer(self, kind: str, timeout: float) -> list[str]:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            for words in self._answered:
                if words[0] == kind:
                    self._answered.remove(words)
                    return words[1:]
            if not self._read(0.5):
                raise EOFError(f"the keeper of {self.name} has ended\n{tail(self.log)}")
        raise TimeoutError(f"the keeper of {self.name} does not answer\n{tail(self.log)}")

    def _read(self, timeout: float) -> bool:
        """Take in what the keeper has said, waiting at most ``timeout`` seconds; returns whether the keeper lives."""
        if self._answers.closed:
            return False
        if not select.select([self._answers], [], [], timeout)[0]:
            return True
        data = os.read(self._answers.fileno(), 65536)
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for words in (line.decode().split() for line in lines):
            if words[0] == "exited":
                self.returncode = int(words[1])
            else:
                self._answered.append(words)
        if not data and self.returncode is None:
            self.returncode = -signal.SIGKILL  # the keeper itself was killed, and took its child along
        return bool(data)
