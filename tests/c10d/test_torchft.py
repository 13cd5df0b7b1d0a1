"""torchft's manager over dlcpd: a replica is killed, the other goes on, and it comes back.

Skipped where torchft is not installed: its nightly builds, the extra `torchft`, are for Linux on
x86-64.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.daemon.kit import ROOT

pytest.importorskip("torchft", reason="torchft-nightly is for Linux on x86-64")

EXAMPLE = ROOT / "examples" / "recipes" / "train_torchft.py"
LIMIT = 200.0  # seconds


def until(true: Callable[[], bool], replica: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + LIMIT
    while not true():
        assert replica.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.timeout(300)
def test_a_replica_is_killed_and_comes_back_with_the_state_of_the_other(tmp_path: Path) -> None:
    from torchft.coordination import LighthouseServer  # noqa: PLC0415  # skipped without it

    lighthouse = LighthouseServer(
        bind="[::]:0", min_replicas=1, join_timeout_ms=500, heartbeat_timeout_ms=2000
    )
    port = lighthouse.address().rpartition(":")[2]
    environ = {
        **os.environ,
        "TORCHFT_LIGHTHOUSE": f"http://localhost:{port}",
        "MASTER_ADDR": "localhost",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
    }
    said = [tmp_path / f"replica{number}" for number in range(2)]

    def start(number: int) -> "subprocess.Popen[bytes]":
        command = [sys.executable, str(EXAMPLE), "--replica", str(number), "--pause", "0.2"]
        with said[number].open("ab") as out:
            return subprocess.Popen([*command, "--steps", "100"], env=environ, stdout=out)

    def shows(number: int, text: str) -> bool:
        return text in said[number].read_text()

    replicas = [start(0), start(1)]
    try:
        until(lambda: shows(0, ": 2 replicas"), replicas[0])
        replicas[1].kill()
        replicas[1].wait()
        alone = len(said[0].read_text())
        until(lambda: ": 1 replicas" in said[0].read_text()[alone:], replicas[0])
        before = len(said[0].read_text())
        replicas[1] = start(1)
        until(lambda: ": 2 replicas" in said[0].read_text()[before:], replicas[0])
        for replica in replicas:
            assert replica.wait(LIMIT) == 0
    finally:
        for replica in replicas:
            replica.kill()
            replica.wait()
        lighthouse.shutdown()
    weights = [file.read_text().split("done: ")[1] for file in said]
    assert weights[0] == weights[1], "replicas hold the same bits"
