"""Faults of processes: what they do to one that does nothing else."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlcp_lab.faults import clock
from dlcp_lab.faults.injections import ClockJump, Limit, Pause, Terminate
from dlcp_lab.faults.leaks import settled
from dlcp_lab.faults.processes import ended
from dlcp_lab.faults.trainer import Trainer

Child = subprocess.Popen[bytes]


@pytest.fixture
def child() -> Iterator[Child]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as made:
        yield made
        made.kill()


def stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def state(pid: int) -> str:
    return stat(pid)[0]


def test_a_paused_process_goes_on(child: Child) -> None:
    pause = Pause(lambda: [child.pid])
    pause.end()  # of what has not begun: nothing
    pause.begin()
    assert not settled(lambda: [] if state(child.pid) == "T" else ["runs"])
    pause.end()
    assert not settled(lambda: ["stopped"] if state(child.pid) == "T" else [])
    assert pause.fired == 1


def test_whoever_is_asked_to_end_has_ended(child: Child) -> None:
    fault = Terminate(lambda: child.pid)
    fault.end()
    fault.begin()
    fault.end()
    assert child.wait(0.5) == -signal.SIGTERM
    assert fault.fired == 1


def test_a_limit_is_taken_back(child: Child) -> None:
    before = resource.prlimit(child.pid, resource.RLIMIT_NOFILE)
    fault = Limit(resource.RLIMIT_NOFILE, lambda: {child.pid: 7})
    fault.begin()
    assert resource.prlimit(child.pid, resource.RLIMIT_NOFILE) == (7, before[1])
    fault.end()
    assert resource.prlimit(child.pid, resource.RLIMIT_NOFILE) == before
    assert fault.fired == 1


def test_a_killed_trainer_has_ended_before_its_server_says_so(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path / "log")
    server = int(stat(trainer.pid)[1])  # its parent
    assert trainer.alive
    os.kill(server, signal.SIGSTOP)
    try:
        os.kill(trainer.pid, signal.SIGKILL)
        assert ended(trainer.pid, within=10.0)
        assert not trainer.alive
    finally:
        os.kill(server, signal.SIGCONT)
    trainer.end()


@pytest.mark.skipif(not clock.library(), reason="libfaketime is not installed")
def test_the_wall_clock_jumps_and_the_other_does_not(tmp_path: Path) -> None:
    hands = clock.Clock(tmp_path / "clock")
    script = (
        "import time, sys\nfor _ in sys.stdin: print(time.time(), time.monotonic(), flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-u", "-c", script],
        env=hands.environ(),
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdin and child.stdout

        def look() -> list[float]:
            assert child.stdin and child.stdout
            child.stdin.write("now\n")
            child.stdin.flush()
            return [float(word) for word in child.stdout.readline().split()]

        jump = ClockJump(hands)
        before = look()
        jump.begin()
        ahead = look()
        jump.end()
        back = look()
        child.stdin.close()
    assert ahead[0] - before[0] > 3599 and back[0] - before[0] < -3500
    assert 0 <= ahead[1] - before[1] < 60 and 0 <= back[1] - ahead[1] < 60
    assert jump.fired == 1
