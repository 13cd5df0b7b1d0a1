"""A training goes on where one of its hosts was stopped for a while."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import psutil

WORLD = 2
PAUSE = 10.0  # seconds; peers are lost after 30
BEFORE = "step 3\n"


def trained(store: Path, pause: float) -> list[str]:
    """The digest of each rank's weights; rank 1's host stands still for `pause` seconds."""
    with ExitStack() as stack:
        ranks = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "tests.faults.paused_training", str(rank), str(store)],
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for rank in range(WORLD)
        ]
        for rank in ranks:
            stack.callback(rank.kill)
        lines = ranks[1].stdout
        assert lines
        said = ""
        for line in lines:
            said += line
            if line == BEFORE and pause:
                _stand_still(ranks[1].pid, pause)
        assert not ranks[1].wait()
        first, _ = ranks[0].communicate()
        assert not ranks[0].returncode
        return [text.split("digest ")[1].strip() for text in (first, said)]


def _stand_still(trainer: int, seconds: float) -> None:
    """Trainer, private daemon and engine, as in a virtual machine that moves."""
    host = [psutil.Process(trainer), *psutil.Process(trainer).children(recursive=True)]
    assert len(host) >= 3
    for process in host:
        os.kill(process.pid, signal.SIGSTOP)
    time.sleep(seconds)
    for process in reversed(host):
        os.kill(process.pid, signal.SIGCONT)


def test_a_host_that_was_stopped_changes_no_bit(tmp_path: Path) -> None:
    plain = trained(tmp_path / "plain", 0.0)
    paused = trained(tmp_path / "paused", PAUSE)
    assert len({*plain, *paused}) == 1
