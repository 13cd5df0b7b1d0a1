"""Rank 0 offers a better network when the flows of a job show that a link has changed."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dlcpd.daemon.peers.membership import Link, Membership
from dlcpd.daemon.peers.peer_messages import RateRow
from dlcpd.daemon.sessions import replanning
from dlcpd.daemon.sessions.adoption import Hosts
from dlcpd.daemon.sessions.replanning import Replanner
from dlcpd.daemon.sessions.session import LocalSession
from dlcpd.schedules.network import HostCapacity

RANKS = 4
M = 10**6
SHARE = 33 * M  # bit/s of a flow, of three that share a link of 100 Mbit/s


def session(rack: str = "") -> LocalSession:
    links = {rank: Link(rank, f"h{rank}", "", "", rank) for rank in range(1, RANKS)}
    membership = Membership("job", 0, 7, "h0", [], {"world_size": RANKS}, links)
    made = LocalSession(7, membership, cast("Any", None), 0, 1.0, cast("Any", None))
    up = M if rack else 0
    told = HostCapacity((100 * M,), (100 * M,), rack, up, up)
    made.network = [(f"h{rank}", told) for rank in range(RANKS)]
    return made


class Job:
    """A session of rank 0 and the reports of its engine; `offered` has the networks."""

    def __init__(self, rates: list[list[int]], made: LocalSession) -> None:
        """`rates`: of each window, bit/s of the flows of each rank."""
        self.windows, self.session, self.offered = iter(rates), made, list[Hosts]()
        self.replanner = Replanner(
            asyncio.get_running_loop(),
            cast("Any", SimpleNamespace(report=self.report)),
            tell=self.tell,
            propose=self.propose,
        )

    def propose(self, _session: LocalSession, network: Hosts) -> bool:
        self.offered.append(network)
        return True

    async def report(self, _ledger: int) -> dict[str, Any]:
        """The end of a window: the peers' rates are there."""
        rates = next(self.windows, None)
        if rates is None:
            self.replanner.enable(wanted=False)
            return {}
        for rank, rate in enumerate(rates):
            rows = [RateRow(peer, rate) for peer in range(RANKS) if peer != rank]
            self.replanner.heard(self.session, rank, [*rows, RateRow(99, rate)])
        return {"sessions": {"7": {"peers": []}}}

    def tell(self, told: LocalSession, rates: list[RateRow]) -> None:
        assert told is self.session and not rates


def offered(
    monkeypatch: pytest.MonkeyPatch, rates: list[list[int]], made: LocalSession | None = None
) -> list[Hosts]:
    monkeypatch.setattr(replanning, "WINDOW", 0.0)

    async def run() -> list[Hosts]:
        job = Job(rates, made or session())
        job.replanner.begin(job.session)
        assert asyncio.all_tasks() == {asyncio.current_task()}  # not enabled
        job.replanner.enable(wanted=True)
        [task] = asyncio.all_tasks() - {asyncio.current_task()}
        await task
        return job.offered

    return asyncio.run(run())


EQUAL, SLOW = [SHARE] * RANKS, [SHARE // 4, *[SHARE] * (RANKS - 1)]


def test_a_link_that_stays_slow_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    [network] = offered(monkeypatch, [EQUAL, SLOW, SLOW])
    rates = {host: told.out_bps[0] for host, told in network}
    assert rates.pop("h0") == pytest.approx(25 * M, rel=0.2)
    assert set(rates.values()) == {100 * M}


@pytest.mark.parametrize(
    "rates", [[EQUAL] * 4, [SLOW], [SLOW, EQUAL, SLOW, EQUAL], [[SHARE // 3] * RANKS] * 4]
)
def test_nothing_is_offered_for(monkeypatch: pytest.MonkeyPatch, rates: list[list[int]]) -> None:
    """Links as planned, one window, a link that flaps, and CPUs that slow all links alike."""
    assert offered(monkeypatch, rates) == []


def test_jobs_in_racks_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert offered(monkeypatch, [SLOW] * 4, session(rack="left")) == []
