"""Three jobs on hosts with two engines, one each: an engine that is killed takes its own along."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace

import psutil
import pytest
import torch
from torch._C._distributed_c10d import HashStore

from dlcp_client import Session, connect
from dlcp_lab.ranks.hosts import Hosts, on_loopback, running
from dlcpd.contract.errors import DlcpError
from dlcpd.daemon.config.tables import NetworkTable
from tests.client.real import TIMEOUT, WORLD, each_rank

SHARED = replace(NetworkTable(), engines=2, engines_per_job=1)


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with running(on_loopback(WORLD, network=SHARED)) as started:
        yield started


def job(hosts: Hosts, name: str) -> list[Session]:
    store = HashStore()
    sessions = each_rank(
        lambda rank: connect(
            store,
            rank,
            WORLD,
            job=name,
            socket=hosts.members[rank].socket,
            timeout=TIMEOUT,
            arena_bytes=16 << 20,
        )
    )
    assert all(isinstance(session, Session) for session in sessions), sessions
    return sessions


def outcomes(sessions: list[Session]) -> list[object]:
    """Of one all-reduce on each rank: the sum or the code of an error."""

    def one(rank: int) -> object:
        tensor = torch.full((100_000,), rank + 1.0)
        try:
            sessions[rank].all_reduce(tensor).wait()
        except DlcpError as exc:
            return exc.code
        return float(tensor[-1])

    return each_rank(one)


def test_jobs_on_the_other_engine_go_on_and_new_ones_are_served(hosts: Hosts) -> None:
    jobs = [job(hosts, f"job{number}") for number in range(3)]
    try:
        assert [outcomes(sessions) for sessions in jobs] == [[3.0, 3.0]] * 3
        control = psutil.Process(hosts.members[0].daemon.process.pid)
        engines = control.children()
        assert len(engines) == 2
        os.kill(engines[0].pid, signal.SIGKILL)
        psutil.wait_procs(engines[:1])
        after = [outcomes(sessions) for sessions in jobs]
        assert sorted(map(str, after)) in (
            sorted(map(str, [[3.0, 3.0]] * well + [["daemon_lost", "peer_lost"]] * (3 - well)))
            for well in (1, 2)
        )
        jobs.append(job(hosts, "afterwards"))
        assert outcomes(jobs[-1]) == [3.0, 3.0]
        assert control.is_running()
        assert len(control.children()) == 2
    finally:
        for sessions in jobs:
            for session in sessions:
                session.close()
