"""Jobs whose links are probed as their ranks join: rates and racks are found without a file."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Event
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import HashStore

from dlcp_client import Session, connect
from dlcp_lab.emulation import Plan, fabric
from dlcp_lab.emulation.patience import patience
from dlcp_lab.ranks.hosts import HostPlan, Hosts, running
from dlcp_lab.ranks.processes import Place
from dlcpd.contract.errors import ProbeFailed
from dlcpd.contract.inquiries import Probed, ProbeRequest
from dlcpd.inspection.conversation import Conversation

pytestmark = pytest.mark.netns

HOSTS = 4
M = 10**6
SIZE = 1 << 18  # float32: 1 MiB
WITHIN = 0.15  # of the rate of tc
MOST = 4  # measurements


@contextmanager
def job(plan: Plan, name: str) -> Iterator[tuple[Hosts, list[Session]]]:
    with fabric(plan) as net:
        plans = [
            HostPlan(
                f"host{host}",
                (net.address(host),),
                place=Place(net.host_namespace(host)),
                probe=True,
            )
            for host in range(HOSTS)
        ]
        with running(plans) as hosts:
            sessions = joined(hosts, name)
            yield hosts, sessions
            for session in sessions:
                session.close()


def joined(hosts: Hosts, name: str) -> list[Session]:
    store, options = HashStore(), {"job": name, "timeout": patience(30.0)}

    def join(rank: int) -> Session:
        where: dict[str, Any] = {"socket": hosts.members[rank].socket, **options}
        return connect(store, rank, HOSTS, arena_bytes=32 << 20, **where)

    with ThreadPoolExecutor(HOSTS) as pool:
        return list(pool.map(join, range(HOSTS)))


def measured(hosts: Hosts, name: str = "") -> Mapping[str, Any]:
    """As `dlcpctl probe --dry-run` does."""
    with Conversation(hosts.members[0].socket, patience(60.0)) as daemon:
        return daemon.ask(ProbeRequest(name, adopt=False), Probed).read()


def step(sessions: list[Session]) -> None:
    """One sum, the same bits on all ranks."""
    tensors = [torch.randn(SIZE) for _ in sessions]
    expected = torch.stack(tensors).sum(0)
    works = [session.all_reduce(one) for session, one in zip(sessions, tensors, strict=True)]
    for work in works:
        work.wait()
    assert all(torch.equal(one, tensors[0]) for one in tensors)
    assert torch.allclose(tensors[0], expected, atol=1e-4)


def beside(hosts: Hosts, name: str, others: list[Session]) -> list[str]:
    """The jobs that a probe names, which runs beside the operations of another job."""
    over = Event()

    def train() -> None:
        while not over.is_set():
            step(others)

    with ThreadPoolExecutor(1) as pool:
        training = pool.submit(train)
        try:
            found: list[str] = _measured_at_last(hosts, name)["beside"]
        finally:
            over.set()
        training.result()
    return found


def _measured_at_last(hosts: Hosts, name: str) -> Mapping[str, Any]:
    """A measurement. On busy cores a probe may miss its deadline; it is repeated then."""
    for _ in range(MOST - 1):
        with suppress(ProbeFailed):
            return measured(hosts, name)
    return measured(hosts, name)


def plans(sessions: list[Session]) -> set[str]:
    return {session.status()["sessions"][0]["plan"] for session in sessions}


def near(found: Mapping[str, Any], rates: Mapping[str, float]) -> bool:
    return all(
        one[way][0] == pytest.approx(rates[host], rel=WITHIN)
        for host, one in found["hosts"].items()
        for way in ("out_bps", "in_bps")
    )


def test_a_slow_host_is_found_as_the_ranks_join() -> None:
    """On a busy machine a measurement may be of its CPUs: it is repeated."""
    rates = {f"host{host}": (40 if host else 10) * M for host in range(HOSTS)}
    plan = Plan(hosts=HOSTS, host_rate="40mbit", limits=(("h0-l0", "10mbit"),))
    with job(plan, "slow") as (hosts, sessions):
        step(sessions)
        step(sessions)
        assert all(one.startswith("forest: gain ") for one in plans(sessions))
        found = [measured(hosts)]
        while len(found) < MOST and not near(found[-1], rates):
            found.append(measured(hosts))
        assert near(found[-1], rates), found
        assert found[-1]["beside"] == [] and found[-1]["racks"].startswith("one: ")
        again = joined(hosts, "again")  # the same hosts: nothing is measured
        assert "event=probe_kept" in (hosts.members[0].folder / "dlcpd.log").read_text()
        assert beside(hosts, "slow", again) == ["again"]
        for session in again:
            session.close()


def test_racks_and_their_uplinks_are_found() -> None:
    plan = Plan(
        hosts=HOSTS,
        leaves=2,
        spines=1,
        host_rate="40mbit",
        spine_rate="20mbit",
        place=(0, 1, 0, 1),
    )
    with job(plan, "racks") as (hosts, sessions):
        step(sessions)
        step(sessions)
        assert all(one.startswith("forest: gain ") for one in plans(sessions))
        found = [measured(hosts)]
        racks = [[one["rack"] for one in found[0]["hosts"].values()]]
        assert racks == [["rack 0", "rack 1", "rack 0", "rack 1"]]
        while len(found) < MOST and not near_uplinks(found[-1]):
            found.append(measured(hosts))
        assert near_uplinks(found[-1]), found


def near_uplinks(found: Mapping[str, Any]) -> bool:
    rates = dict.fromkeys(found["hosts"], 40.0 * M)
    ups = [one[way] for one in found["hosts"].values() for way in ("up_bps", "down_bps")]
    return near(found, rates) and ups == pytest.approx([20 * M] * len(ups), rel=WITHIN)
