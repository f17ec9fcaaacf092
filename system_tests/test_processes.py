"""Nothing that a test starts outlives it, whatever ends the test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from airflow_state_watchers.demo.processes import KeptProcess, Port, ProcessDied, living

# A process with a child in the same session and two that left it, one of them without a parent.
FAMILY = """
import subprocess, time
subprocess.Popen(["sleep", "300"])
subprocess.Popen(["sleep", "300"], start_new_session=True)
subprocess.Popen(["sh", "-c", "setsid sleep 300 &"]).wait()
print("ready", flush=True)
time.sleep(300)
"""


def wait_for(predicate: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not predicate():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def family(tmp_path: Path) -> Iterator[KeptProcess]:
    with KeptProcess("family", [sys.executable, "-c", FAMILY], log=tmp_path / "log") as process:
        wait_for(lambda: "ready" in process.log.read_text())
        assert len(process.pids()) == 4
        yield process


def test_close_kills_every_descendant(family: KeptProcess) -> None:
    pids = family.pids()
    family.close()
    assert not living(pids)
    assert family.returncode == -signal.SIGKILL


def test_kill_of_the_process_alone_leaves_its_children(family: KeptProcess) -> None:
    main, *children = family.pids()
    assert family.signal(signal.SIGKILL, "main") == [main]
    assert family.wait(10) == -signal.SIGKILL
    assert family.pids() == children
    family.close()
    assert not living(children)


def test_kill_of_the_children_alone(family: KeptProcess) -> None:
    children = family.pids()[1:]
    assert sorted(family.signal(signal.SIGKILL, "children")) == children
    wait_for(lambda: family.pids() == [family.pid])
    assert family.poll() is None
    family.close()


def test_kill_of_the_whole_tree(family: KeptProcess) -> None:
    pids = family.pids()
    assert sorted(family.signal(signal.SIGKILL, "tree")) == pids
    family.wait(10)
    wait_for(lambda: not living(pids))
    assert family.pids() == []
    family.close()


def test_a_frozen_process_is_stopped_and_can_be_killed(family: KeptProcess) -> None:
    pids = family.signal(signal.SIGSTOP, "tree")
    wait_for(lambda: all(psutil.Process(pid).status() == psutil.STATUS_STOPPED for pid in pids))
    family.close()
    assert not living(pids)


@pytest.mark.parametrize("patience", [0.0, 5.0])
def test_exit_code_and_log_are_told(tmp_path: Path, patience: float) -> None:
    process = KeptProcess("failing", ["sh", "-c", "echo out of luck >&2; exit 3"], log=tmp_path / "log")
    assert process.wait(10) == 3
    with pytest.raises(ProcessDied, match=r"(?s)failing ended with exit code 3.*out of luck"):
        process.check()
    process.close(patience=patience)


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    with KeptProcess("absent", ["/does/not/exist"], log=tmp_path / "log") as process:
        assert process.wait(10) == 127
    assert "cannot execute /does/not/exist" in process.log.read_text()


PARENT = f"""
import signal, sys, time
from pathlib import Path
# A run in the background ignores these two, and so would this process.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from airflow_state_watchers.demo.processes import KeptProcess
process = KeptProcess("family", [sys.executable, "-c", {FAMILY!r}], log=Path(sys.argv[1]))
while "ready" not in process.log.read_text():
    time.sleep(0.02)
print(*process.pids(), flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_death_of_the_parent_kills_everything(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as parent:
        assert parent.stdout
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        alive = living(pids)
        parent.send_signal(number)
    assert len(alive) == len(pids) == 4
    wait_for(lambda: not living(pids))


def test_a_fork_of_the_parent_keeps_nothing_alive(tmp_path: Path) -> None:
    # It holds the lifeline open, but it is not the parent.
    source = PARENT.replace("print(*", "import os; fork = os.fork()\nif not fork: time.sleep(300)\nprint(fork, *")
    command = [sys.executable, "-c", source, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        fork, *pids = map(int, parent.stdout.readline().split())
        parent.kill()
        parent.stdout.close()
    wait_for(lambda: not living(pids))
    assert living([fork])
    os.kill(fork, signal.SIGKILL)


def test_an_interrupt_from_the_terminal_reaches_the_parent_alone(tmp_path: Path) -> None:
    heard_as = "lambda *_: print('interrupted', flush=True)"
    source = PARENT.replace("signal.default_int_handler", heard_as)
    command = [sys.executable, "-c", source, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as parent:
        assert parent.stdout
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        os.killpg(parent.pid, signal.SIGINT)
        heard = parent.stdout.readline()
        alive = living(pids)
        parent.kill()
    assert heard == "interrupted\n"
    assert alive == pids
    wait_for(lambda: not living(pids))


def test_a_process_that_kills_its_own_group_does_not_kill_its_keeper(tmp_path: Path) -> None:
    source = FAMILY.replace("time.sleep(300)", "import os; os.killpg(0, 9)")
    with KeptProcess("family", [sys.executable, "-c", source], log=tmp_path / "log") as process:
        assert process.wait(10) == -signal.SIGKILL
        orphans = process.pids()
        assert orphans  # at least the one that was started in a session of its own
    wait_for(lambda: not living(orphans))


def test_the_death_of_the_keeper_kills_the_process(family: KeptProcess) -> None:
    main, *orphans = family.pids()
    os.kill(psutil.Process(main).ppid(), signal.SIGKILL)
    wait_for(lambda: not living([main]))
    assert family.poll() == -signal.SIGKILL
    assert family.pids() == []
    for pid in orphans:  # nobody is left who knows them
        os.kill(pid, signal.SIGKILL)
    family.close()


def test_ports_differ_and_are_kept_from_other_runs() -> None:
    ports = [Port() for _ in range(300)]
    assert len({port.number for port in ports}) == len(ports)
    number = ports[0].number
    probe = f"""
from airflow_state_watchers.demo import processes
processes.PORTS = range({number}, {number} + 1)
processes.random.sample = lambda among, _: list(among)
processes.Port()
"""
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert "no free port" in run.stderr
    for port in ports:
        port.release()
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0
