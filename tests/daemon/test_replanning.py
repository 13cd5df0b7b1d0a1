"""Rank 0 offers a better network when the flows of a job show that a link has changed."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dlcpd.contract.errors import ProbeFailed
from dlcpd.daemon.peers.membership import Link, LinkState, Membership
from dlcpd.daemon.peers.peer_messages import LinkRow
from dlcpd.daemon.sessions import replanning
from dlcpd.daemon.sessions.adoption import Hosts
from dlcpd.daemon.sessions.prober import RankPairs
from dlcpd.daemon.sessions.replanning import Replanner
from dlcpd.daemon.sessions.session import LocalSession
from dlcpd.planning.replan import WINDOW
from dlcpd.schedules.network import HostCapacity

RANKS = 4
M = 10**6
Rows = list[LinkRow]  # by rank: what it tells of both directions
AS_PLANNED = LinkRow(95 * M, 92 * M, 90)
SLOWER = LinkRow(26 * M, 25 * M, 80)
WAITS = LinkRow(50 * M, 0, 10)  # for a slower link
IDLE = LinkRow(0, 0, 0)


def session(rack: str = "") -> LocalSession:
    links = {rank: Link(rank, f"h{rank}", "", "", rank) for rank in range(1, RANKS)}
    membership = Membership("job", 0, 7, "h0", [], {"world_size": RANKS}, links)
    made = LocalSession(7, membership, cast("Any", None), 0, 1.0, cast("Any", None))
    up = 400 * M if rack else 0
    told = HostCapacity((100 * M,), (100 * M,), rack, up, up)
    made.network = [(f"h{rank}", told) for rank in range(RANKS)]
    return made


class Job:
    """A session of rank 0 and the reports of its engine; `offered` has the networks."""

    def __init__(self, rates: list[Rows], made: LocalSession) -> None:
        """`rates`: of each window."""
        self.windows, self.session, self.offered = iter(rates), made, list[Hosts]()
        self.probes, self.probed = list[RankPairs](), cast("int | None", None)
        self.hosts = RANKS - 1  # that waited for the link of host 0
        self.now, tasks = 0.0, asyncio.get_running_loop().create_task
        self.replanner = Replanner(
            cast("Any", SimpleNamespace(time=lambda: self.now, create_task=tasks)),
            cast("Any", SimpleNamespace(report=self.report)),
            tell=self.tell,
            propose=self.propose,
            probe=self.probe,
        )

    async def probe(self, _session: LocalSession, sizes: RankPairs) -> RankPairs:
        self.probes.append(sizes)
        if self.probed is None:
            raise ProbeFailed("rank 1: no answer")
        return dict.fromkeys(sizes, self.probed)

    def propose(self, _session: LocalSession, network: Hosts) -> bool:
        self.offered.append(network)
        return True

    async def report(self, _ledger: int) -> dict[str, Any]:
        """The end of a window: the peers' rates are there."""
        rates = next(self.windows, None)
        self.now += WINDOW
        if rates is None:
            self.replanner.enable(wanted=False)
            return {}
        for rank, row in enumerate(rates[1:], 1):
            self.replanner.heard(self.session, rank, row, row)
        self.replanner.heard(self.session, 99, SLOWER, SLOWER)
        return {"links": dict.fromkeys(("out", "in"), rates[0]._asdict() | {"hosts": self.hosts})}

    def tell(self, told: LocalSession, out: LinkRow, into: LinkRow) -> None:
        assert told is self.session
        self.replanner.heard(told, 0, out, into)


def run(
    monkeypatch: pytest.MonkeyPatch,
    rates: list[Rows],
    made: LocalSession | None = None,
    probed: int | None = None,
) -> Job:
    monkeypatch.setattr(replanning, "TICK", 0.0)  # time passes by reports
    monkeypatch.setattr(replanning, "SETTLED", 0.0)

    async def runs() -> Job:
        job = Job(rates, made or session())
        job.probed = probed
        job.replanner.begin(job.session)
        assert asyncio.all_tasks() == {asyncio.current_task()}  # not enabled
        job.replanner.enable(wanted=True)
        [task] = asyncio.all_tasks() - {asyncio.current_task()}
        await task
        return job

    return asyncio.run(runs())


def offered(
    monkeypatch: pytest.MonkeyPatch, rates: list[Rows], made: LocalSession | None = None
) -> list[Hosts]:
    """The networks that are offered."""
    return run(monkeypatch, rates, made).offered


EQUAL, SLOW = [AS_PLANNED] * RANKS, [SLOWER, *[WAITS] * (RANKS - 1)]


def test_a_link_that_stays_slow_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    [network] = offered(monkeypatch, [EQUAL, SLOW, SLOW])
    rates = {host: told.out_bps[0] for host, told in network}
    assert rates.pop("h0") == pytest.approx(25 * M)
    assert set(rates.values()) == {100 * M}


@pytest.mark.parametrize(
    "rates", [[EQUAL] * 4, [SLOW], [SLOW, EQUAL, SLOW, EQUAL], [[SLOWER] * RANKS] * 4]
)
def test_nothing_is_offered_for(monkeypatch: pytest.MonkeyPatch, rates: list[Rows]) -> None:
    """Links as planned, one window, a link that flaps, and CPUs that slow all links alike."""
    assert offered(monkeypatch, rates) == []


def test_a_slow_host_in_a_rack_is_offered_with_its_rack(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flows to another rack, which its uplink limits, are no measure of a host."""
    made = session(rack="left")
    right = [Link(rank, f"h{rank}", "", "", rank) for rank in range(RANKS, 2 * RANKS)]
    made.membership.links.update({link.rank: link for link in right})
    capacity = HostCapacity((100 * M,), (100 * M,), "right", 400 * M, 400 * M)
    made.network += [(link.host, capacity) for link in right]
    [network] = offered(monkeypatch, [SLOW] * 2, made)
    assert network[0][1].out_bps[0] == pytest.approx(25 * M, rel=0.2)
    assert network[0][1]._replace(out_bps=(100 * M,), in_bps=(100 * M,)) == made.network[0][1]
    assert network[RANKS:] == made.network[RANKS:]


def test_hosts_of_racks_of_two_keep_their_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flow between two does not tell which of them is slow."""
    made = session(rack="left")
    made.network = [
        (host, told._replace(rack=f"rack {number // 2}"))
        for number, (host, told) in enumerate(made.network)
    ]
    assert offered(monkeypatch, [SLOW] * 4, made) == []


UNSEEN = [IDLE, *[AS_PLANNED] * (RANKS - 1)]  # host 0 has no traffic
MINUTE = round(60 / WINDOW) + 8  # windows


def slow_host() -> LocalSession:
    made = session()
    slow = HostCapacity((20 * M,), (20 * M,))
    made.network = [("h0", slow), *made.network[1:]]
    return made


def test_a_restored_link_without_traffic_is_probed_twice_and_offered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = run(monkeypatch, [UNSEEN] * MINUTE, slow_host(), probed=100 * M)
    first, again = job.probes[:2]
    assert set(first) == set(again) == {(0, 1), (1, 0)}
    assert all(size <= 20 * M // 8 * 0.1 for size in job.probes[0].values())
    assert job.offered[0][0] == ("h0", HostCapacity((100 * M,), (100 * M,)))
    assert job.offered[0][1:] == session().network[1:]


@pytest.mark.parametrize("probed", [None, 20 * M])
def test_a_probe_that_fails_or_finds_no_change_offers_nothing(
    monkeypatch: pytest.MonkeyPatch, probed: int | None
) -> None:
    job = run(monkeypatch, [UNSEEN] * MINUTE, slow_host(), probed)
    assert job.probes and not job.offered


def test_a_job_without_traffic_is_not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, [[IDLE] * RANKS] * MINUTE, probed=M).probes == []


def test_the_hosts_that_are_left_are_measured_after_a_rank_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = session()
    made.membership.links[3].state = LinkState.GONE
    [network] = offered(monkeypatch, [EQUAL[:3], SLOW[:3], SLOW[:3]], made)
    assert network[0][1].out_bps[0] == 25 * M
    assert network[3] == made.network[3]


def test_a_link_that_is_faster_than_planned_is_probed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The job's data show that it is faster; what it carries beside the probe, how fast."""
    faster = [LinkRow(60 * M, 0, 0), *[AS_PLANNED] * (RANKS - 1)]
    looked = [faster[0]._replace(most=90 * M), *faster[1:]]
    job = run(monkeypatch, [faster, looked, looked, looked, looked], slow_host(), probed=30 * M)
    assert set(job.probes[0]) == {(0, 1), (1, 0)}
    assert job.offered[0] == session().network


def test_a_link_that_not_all_hosts_wait_for_is_not_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data of one host may be late because of that host."""

    class Fewer(Job):
        def __init__(self, rates: list[Rows], made: LocalSession) -> None:
            super().__init__(rates, made)
            self.hosts = RANKS - 2

    monkeypatch.setattr("tests.daemon.test_replanning.Job", Fewer)
    assert offered(monkeypatch, [SLOW] * 4) == []
