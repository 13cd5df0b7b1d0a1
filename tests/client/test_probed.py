"""Probes of jobs on loopback: clients wait for them, and each refusal says what to do."""

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import HashStore

from dlcp_client import Session, connect
from dlcp_lab.ranks.hosts import Hosts, on_loopback, running
from dlcpd.contract.errors import BadOperation, ProbeFailed
from dlcpd.contract.inquiries import Probed, ProbeRequest
from dlcpd.inspection.conversation import Conversation
from tests.client.real import TIMEOUT

HOSTS = 3
WORLD = 4  # two ranks on the first host


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with running(on_loopback(HOSTS, probe=True)) as started:
        yield started


@contextmanager
def joined(hosts: Hosts, job: str, world: int = WORLD, first: int = 0) -> Iterator[list[Session]]:
    """Sessions of ranks on the hosts in turn, the first rank on host `first`."""
    store = HashStore()

    def join(rank: int) -> Session:
        where: dict[str, Any] = {"socket": hosts.members[(rank + first) % HOSTS].socket}
        return connect(store, rank, world, job=job, timeout=TIMEOUT, arena_bytes=16 << 20, **where)

    with ThreadPoolExecutor(world) as pool:
        sessions = list(pool.map(join, range(world)))
    try:
        yield sessions
    finally:
        for session in sessions:
            session.close()


def probed(hosts: Hosts, job: str = "", host: int = 0, *, adopt: bool = False) -> Mapping[str, Any]:
    with Conversation(hosts.members[host].socket, TIMEOUT) as daemon:
        return daemon.ask(ProbeRequest(job, adopt), Probed).read()


def names(hosts: Hosts) -> list[str]:
    with Conversation(hosts.members[0].socket) as daemon:
        return [row["job"] for row in daemon.status(0)["sessions"]]


def log_of(hosts: Hosts, host: int = 0) -> str:
    return (hosts.members[host].folder / "dlcpd.log").read_text()


def reduced(sessions: list[Session]) -> None:
    tensors = [torch.full((1000,), rank + 1.0) for rank in range(len(sessions))]
    total = torch.stack(tensors).sum(0)
    for work in [s.all_reduce(t) for s, t in zip(sessions, tensors, strict=True)]:
        work.wait()
    assert all(torch.equal(one, total) for one in tensors)


def adopted(sessions: list[Session], version: int) -> None:
    """Reduce until all have a network of this version. An offer takes some operations, and longer
    where the machine is busy."""
    until = time.monotonic() + TIMEOUT
    while {version_of(session) for session in sessions} != {version}:
        assert time.monotonic() < until, f"not adopted after {TIMEOUT:g} s"
        reduced(sessions)


def version_of(session: Session) -> int:
    found: int = session.status()["sessions"][0]["plan_version"]
    return found


def test_clients_are_let_in_after_the_probe_and_later_ones_at_once(hosts: Hosts) -> None:
    with joined(hosts, "first") as sessions:
        adopted(sessions, 2)  # the measured network, under way
        assert "event=probed " in log_of(hosts) and "probe_failed" not in log_of(hosts)
        assert {version_of(session) for session in sessions} == {2}
    with joined(hosts, "second"):
        assert log_of(hosts).count("event=probed ") == 1
        assert log_of(hosts).count("event=probe_kept ") == 1


def test_a_probe_on_request_measures_and_offers_only_if_asked(hosts: Hosts) -> None:
    with joined(hosts, "asked") as sessions:
        for _ in range(3):
            reduced(sessions)
        before = version_of(sessions[0])
        found = probed(hosts)
        assert list(found["hosts"]) == ["host0", "host1", "host2"]
        assert all(one["out_bps"][0] > 10**6 for one in found["hosts"].values())
        assert not found["offered"] and found["plan"] and found["beside"] == []
        assert version_of(sessions[0]) == before
        assert probed(hosts, adopt=True)["offered"]
        adopted(sessions, before + 1)


def test_a_busy_job_another_rank_and_one_host_are_refused(hosts: Hosts) -> None:
    with pytest.raises(BadOperation, match="no open session"):
        probed(hosts)
    with joined(hosts, "refused") as sessions:
        with pytest.raises(BadOperation, match="rank 0 leads"):
            probed(hosts, host=1)
        with pytest.raises(BadOperation, match="no open session of job 'other'"):
            probed(hosts, "other")
        busy = sessions[1].all_reduce(torch.ones(1000))  # waits for the others
        with pytest.raises(ProbeFailed, match=r"rank 1 on host1: 1 operations of the job are open"):
            probed(hosts)
        works = [s.all_reduce(torch.ones(1000)) for s in (sessions[0], *sessions[2:])]
        for work in (busy, *works):
            work.wait()
        with joined(hosts, "alone", world=1):
            with pytest.raises(BadOperation, match="several jobs"):
                probed(hosts)
            alone = next(name for name in names(hosts) if name.startswith("alone"))
            with pytest.raises(BadOperation, match="all ranks are on one host"):
                probed(hosts, alone)


def test_traffic_of_another_job_is_named(hosts: Hosts) -> None:
    with joined(hosts, "quiet"), joined(hosts, "loud", world=2, first=1) as others:
        quiet = next(name for name in names(hosts) if name.startswith("quiet"))
        tensors = [torch.ones(1 << 20) for _ in others]
        with ThreadPoolExecutor(1) as pool:
            running_ = pool.submit(probed, hosts, quiet)
            while not running_.done():
                for work in [s.all_reduce(t) for s, t in zip(others, tensors, strict=True)]:
                    work.wait()
            found = running_.result()
        assert [name.startswith("loud") for name in found["beside"]] == [True]
