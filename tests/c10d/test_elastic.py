"""torchrun starts a job again that has lost a rank; of the first start nothing is left."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from torch._C._distributed_c10d import TCPStore

from tests.daemon.kit import ROOT, Daemon, configuration

SCRIPT = Path(__file__).with_name("elastic.py")
TRAINING = SCRIPT.with_name("elastic_ddp.py")
LIMIT = 240.0  # seconds; six processes import torch, twice


@pytest.mark.parametrize("size", [2, 3])
def test_a_job_is_started_again_after_a_rank_died(size: int, tmp_path: Path) -> None:
    argv = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(size),
        "--max-restarts",
        "1",
        str(SCRIPT),
        str(tmp_path),
    ]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        argv, env=environ, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    left = sorted(file.name for file in tmp_path.iterdir())
    assert left == [f"rank{rank}.start1" for rank in range(size)]


def trained(folder: Path) -> list[str]:
    """What the ranks that came to the end left there."""
    return sorted(file.name for file in folder.iterdir() if file.name.startswith("rank"))


def surroundings(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **more}


@pytest.mark.timeout(300)
def test_a_training_goes_on_from_its_checkpoint_with_the_daemon_of_its_host(tmp_path: Path) -> None:
    argv = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "--max-restarts",
        "1",
        str(TRAINING),
        str(tmp_path),
    ]
    with Daemon(configuration(tmp_path), mode="") as daemon:
        environ = surroundings(DLCPD_SOCKET=str(daemon.socket))
        done = subprocess.run(
            argv, env=environ, capture_output=True, text=True, timeout=LIMIT, check=False
        )
        assert daemon.process.poll() is None
    assert done.returncode == 0, done.stderr[-4000:]
    assert trained(tmp_path) == ["rank0.of2.from3", "rank1.of2.from3"]


@pytest.mark.timeout(300)
def test_of_two_nodes_one_dies_and_the_other_goes_on(tmp_path: Path) -> None:
    """`--nnodes 1:2`, private daemons: the agent of one node is killed together with its worker.

    The store of the rendezvous is here, so that it does not die with either of them.
    """
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    argv = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nnodes",
        "1:2",
        "--nproc-per-node",
        "1",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        f"localhost:{store.port}",
        "--rdzv-id",
        "job",
        "--rdzv-conf",
        "is_host=false,last_call_timeout=3,keep_alive_interval=1,keep_alive_max_attempt=2",
        "--local-addr",
        "localhost",
        "--max-restarts",
        "3",
        str(TRAINING),
        str(tmp_path),
    ]
    nodes: list[subprocess.Popen[bytes]] = []
    try:
        nodes += [subprocess.Popen(argv, env=surroundings(VICTIM="parent")) for _ in range(2)]
        assert nodes[0].wait(LIMIT) == 0 or nodes[1].wait(LIMIT) == 0
    finally:
        for node in nodes:
            node.kill()
            node.wait()
    assert -signal.SIGKILL in [node.returncode for node in nodes]
    assert trained(tmp_path) == ["rank0.of1.from3"]
