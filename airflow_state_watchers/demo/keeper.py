"""Keeps one process and everything that descends from it, and ends them all when its own parent is gone.

Run as a script by :mod:`airflow_state_watchers.demo.processes`, never imported by Airflow; only the standard library,
so that it starts in a few milliseconds and needs no site-packages::

    keeper.py UID:GID ORPHAN_SIGNAL COMMAND...

- Standard input is the lifeline. When it ends, or the parent process changes (the parent was killed, even with -9),
  everything below the keeper is killed. Before that, each line on it is an order:
  ``signal NUMBER main|children|tree`` or ``list``.
- Standard output answers, one line each: ``started PID``, ``exited CODE``, ``pids PID...`` (to each order).
- Standard error is the log of the kept process.

A process group would not do: Airflow puts task processes into groups of their own. So the keeper declares itself the
*subreaper* of its descendants (Linux): whoever loses their parent becomes a child of the keeper, and is found.
Elsewhere orphans can be found only by the group of the kept process.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LINUX = sys.platform == "linux"

LEFTOVER_SECONDS = 30.0
"""How long descendants may outlive the kept process by themselves (a triggerer's runner notices its closed pipe)."""
GRACEFUL_SECONDS = 5.0


def prctl(option: int, value: int) -> None:
    if LINUX:
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def parents() -> dict[int, int]:
    """Return the parent of every process that can be seen, by pid."""
    if not LINUX:
        listing = subprocess.run(["/bin/ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=True)
        return {int(pid): int(ppid) for pid, ppid in (line.split() for line in listing.stdout.splitlines())}
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:
            # The command's name is in parentheses and may hold anything, spaces and parentheses too.
            state, ppid = stat.read().rpartition(b")")[2].split()[:2]
            if state != b"Z":
                found[int(name)] = int(ppid)
    return found


def below(root: int) -> list[int]:
    """Return the living descendants of ``root``, parents before their children."""
    children: dict[int, list[int]] = {}
    for pid, ppid in parents().items():
        children.setdefault(ppid, []).append(pid)
    found = []
    waiting = [root]
    while waiting:
        waiting = [child for pid in waiting for child in children.get(pid, ())]
        found += waiting
    return found


def send(number: int, pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def say(line: str) -> None:
    # The parent may be gone; that is noticed elsewhere.
    with contextlib.suppress(OSError):
        os.write(1, f"{line}\n".encode())


def launch(command: list[str], owner: str, keeper: int) -> int:
    """Fork and execute ``command`` in a session of its own; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)  # what is ignored here would stay ignored there
        os.setsid()  # a process that signals its own group must not meet its keeper
        uid, gid = map(int, owner.split(":"))
        if os.geteuid() == 0 and uid:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # after setuid, which would clear it
        if os.getppid() != keeper:
            os._exit(1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        os.execvp(command[0], command)  # noqa: S606
    except BaseException as error:
        os.write(2, f"cannot execute {command[0]}: {error}\n".encode())
    os._exit(127)


class Keeper:
    def __init__(self, command: list[str], owner: str, orphan_signal: int) -> None:
        self.parent = os.getppid()
        self.orphan_signal = orphan_signal
        self.ending = False
        self.ended_at: float | None = None
        self.buffer = b""
        self.main = launch(command, owner, os.getpid())
        say(f"started {self.main}")

    def reap(self) -> bool:
        """Collect what has ended; returns whether any child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.main:
                self.ended_at = time.monotonic()
                say(f"exited {os.waitstatus_to_exitcode(status)}")

    def chosen(self, scope: str) -> list[int]:
        """The pids an order means. Orphans of a main process that is gone count as children."""
        everything = below(os.getpid())
        if scope == "main":
            return [pid for pid in everything if pid == self.main]
        return everything if scope == "tree" else [pid for pid in everything if pid != self.main]

    def obey(self, order: str) -> None:
        verb, *words = order.split()
        pids = self.chosen(words[1] if verb == "signal" else "tree")
        if verb == "signal":
            number = int(words[0])
            if number == signal.SIGKILL:
                send(signal.SIGSTOP, pids)  # so that none sees another die first, as when the machine loses power
            send(number, pids)
        say(" ".join(["pids", *map(str, pids)]))

    def read_orders(self) -> None:
        data = os.read(0, 4096)
        if not data:
            self.ending = True
        *orders, self.buffer = (self.buffer + data).split(b"\n")
        for order in orders:
            self.obey(order.decode())

    def watch(self, wakeup: int) -> None:
        """Return when nothing is left to keep, or when all must end."""
        while self.reap() and not self.ending:
            if os.getppid() != self.parent:
                return
            if self.ended_at is not None and time.monotonic() > self.ended_at + LEFTOVER_SECONDS:
                return
            readable = select.select([0, wakeup], [], [], 0.5)[0]
            if wakeup in readable:
                os.read(wakeup, 512)
            if 0 in readable:
                self.read_orders()

    def end_all(self) -> None:
        if self.ended_at is None and self.orphan_signal:
            send(self.orphan_signal, [self.main])
            self.until_gone(lambda: not self.reap(), GRACEFUL_SECONDS)
        while self.reap():
            if not LINUX:
                with contextlib.suppress(OSError):
                    os.killpg(self.main, signal.SIGKILL)
            send(signal.SIGKILL, below(os.getpid()))
            time.sleep(0.01)

    @staticmethod
    def until_gone(gone: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not gone() and time.monotonic() < deadline:
            time.sleep(0.02)


def main(owner: str, orphan_signal: str, *command: str) -> None:
    wakeup, wake = os.pipe()
    os.set_blocking(wakeup, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    keeper = Keeper(list(command), owner, int(orphan_signal))
    signal.signal(signal.SIGTERM, lambda *_: setattr(keeper, "ending", True))
    keeper.watch(wakeup)
    keeper.end_all()


if __name__ == "__main__":
    main(*sys.argv[1:])
