"""What is complete on a rank reaches its peers, although its client is gone by then."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dlcp_lab.ranks.hosts import Hosts, on_loopback, running
from dlcpd.contract.errors import PeerLost
from dlcpd.contract.messages import Completed
from dlcpd.daemon.config.tables import NetworkTable
from dlcpd.io import commands, control_events
from dlcpd.io.config import EngineConfig
from tests.attack import leaving_rank
from tests.io.engines import Job

COUNT = 300_000
LATE = 2.0  # seconds
PATIENCE = 60.0  # seconds until a test fails
ENDS = {
    "close": 0, "return": 0, "sys.exit": 3, "os._exit": 0, "kill": -signal.SIGKILL, "exception": 1
}  # fmt: skip


@pytest.fixture
def job() -> Iterator[Job]:
    started = Job(2, lambda rank: EngineConfig(host=f"host{rank}", paths=(("127.0.0.1", 0),)))
    yield started
    started.close()


@pytest.mark.check(114, "completed means delivered: a receiver comes after the sender has left")
def test_a_receiver_that_comes_after_the_sender_has_left_gets_the_value(job: Job) -> None:
    root, receiver = job.ranks
    root.tensor(0, COUNT)[:] = np.arange(COUNT, dtype=np.float32)
    root.submit(1, collective="broadcast", peer=0, in_place=False, count=COUNT)
    assert isinstance(root.outcome(1), Completed)
    job.die(root)
    assert job.engines[0].receive() == control_events.LeftOpen(1, 0)
    left = job.engines[0].receive()
    assert left == control_events.SessionLeft(1, 1, [commands.Begun(0, 1)], last=True)
    time.sleep(LATE)
    receiver.submit(1, collective="broadcast", peer=0, in_place=False, count=COUNT)
    assert isinstance(receiver.outcome(1), Completed)
    assert np.array_equal(receiver.tensor(0, COUNT), np.arange(COUNT, dtype=np.float32))
    assert job.engines[0].receive() == control_events.SessionDelivered(1)


@pytest.fixture(scope="module")
def hosts(request: pytest.FixtureRequest) -> Iterator[Hosts]:
    """With as many engines each as the test says."""
    network = replace(NetworkTable(), engines=request.param)
    with running(on_loopback(leaving_rank.WORLD, network=network)) as started:
        yield started


@pytest.mark.check(114, "every collective, every way to leave: whoever comes later has the result")
@pytest.mark.parametrize(
    ("hosts", "way", "mode"),
    [
        *((1, way, "exact") for way in ENDS),
        (1, "close", "bounded"), (1, "kill", "bounded"),
        (2, "close", "exact"), (2, "return", "bounded"), (2, "kill", "exact"),
    ],
    indirect=["hosts"],
)  # fmt: skip
def test_a_rank_that_ends_takes_no_result_along(
    hosts: Hosts, tmp_path: Path, way: str, mode: str
) -> None:
    store, sockets = str(tmp_path / "store"), [host.socket for host in hosts.members]
    rank = [sys.executable, "-m", "tests.attack.leaving_rank", store, sockets[0], way, mode]
    with subprocess.Popen(rank, stderr=subprocess.PIPE, text=True) as leaver:
        session = leaving_rank.joined(store, 1, sockets[1])
        try:
            works = leaving_rank.together(session, mode)
            _, said = leaver.communicate(timeout=PATIENCE)
            assert leaver.returncode == ENDS[way], said
            time.sleep(LATE)
            works += leaving_rank.from_root(session)
            for work, got, wanted in works:
                work.wait()
                assert torch.equal(got, wanted)
            with pytest.raises(PeerLost, match="rank 0 on host0 left"):
                session.all_reduce(torch.ones(3)).wait()
        finally:
            leaver.kill()
            session.close()
