"""The agent of torchrun is killed: what becomes of trainers and daemons follows a rule."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.checks import Measured

SCRIPT = Path(__file__).with_name("agent_rank.py")
RANKS = 2
PATIENCE = 60.0  # seconds; importing torch on a busy machine


def until(true: Callable[[], bool], what: str) -> float:
    """Seconds until it is."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() < began + PATIENCE, what
        time.sleep(0.02)
    return time.monotonic() - began


def ended(pid: int) -> bool:
    """Also one that nobody has asked about yet."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return status.rpartition(")")[2].split()[0] == "Z"


class Training:
    """torchrun with ranks that reduce; its agent dies when it is told to."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.folder = folder
        self.agent = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--standalone",
                "--nproc-per-node",
                str(RANKS),
                str(SCRIPT),
                str(folder),
            ],
            env={**os.environ, "OMP_NUM_THREADS": "1", **environ},
            stderr=subprocess.DEVNULL,
        )
        until(lambda: min(self.steps()) > 0, "all ranks have begun")

    def said(self, rank: int) -> list[int]:
        """Process ids of the rank and its daemon, and steps."""
        with suppress(FileNotFoundError):
            return list(map(int, (self.folder / f"rank{rank}").read_text().split()))
        return [0, 0, 0]

    def steps(self) -> list[int]:
        return [self.said(rank)[2] for rank in range(RANKS)]

    def processes(self) -> list[int]:
        """Ranks, and their private daemons with their engines."""
        found = [pid for rank in range(RANKS) for pid in self.said(rank)[:2]]
        for control in found[1::2]:
            children = Path(f"/proc/{control}/task/{control}/children").read_text()
            found += map(int, children.split())
        return found

    def kill_agent(self) -> None:
        self.agent.send_signal(signal.SIGKILL)
        self.agent.wait(PATIENCE)

    def close(self) -> None:
        (self.folder / "stop").touch()
        if self.agent.poll() is None:
            self.agent.terminate()
            self.agent.wait(PATIENCE)
        for rank in range(RANKS):
            with suppress(ProcessLookupError):
                if pid := self.said(rank)[0]:
                    os.kill(pid, signal.SIGKILL)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    (tmp_path / "stop").touch()


@pytest.mark.check(18, "torchrun's agent is killed")
def test_trainers_go_on_and_leave_nothing_behind(folder: Path, measured: Measured) -> None:
    training = Training(folder)
    try:
        everybody = training.processes()
        training.kill_agent()
        before = max(training.steps())
        until(lambda: min(training.steps()) > before + 10, "training goes on")
        assert not any(map(ended, everybody))
        (folder / "stop").touch()
        took = until(lambda: all(map(ended, everybody)), "all end with the training")
        assert all((folder / f"done{rank}").exists() for rank in range(RANKS))
    finally:
        training.close()
    measured(f"{len(everybody)} processes go on, and are gone {took:.1f} s after the training")


@pytest.mark.check(18, "torchrun's agent is killed")
def test_trainers_end_with_it_where_that_is_asked_for(folder: Path, measured: Measured) -> None:
    training = Training(folder, DLCPD_END_WITH_LAUNCHER="1")
    try:
        everybody = training.processes()
        training.kill_agent()
        took = until(lambda: all(map(ended, everybody)), "all end with the agent")
        assert not list(folder.glob("done*"))
    finally:
        training.close()
    measured(f"with DLCPD_END_WITH_LAUNCHER=1 gone after {took:.1f} s")
