"""Measures the links of running jobs by their own traffic, and has rank 0 offer better plans."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from dlcpd.contract.errors import DlcpError
from dlcpd.daemon import log
from dlcpd.daemon.engines import Engines
from dlcpd.daemon.peers.peer_messages import RateRow
from dlcpd.daemon.sessions.adoption import Hosts
from dlcpd.daemon.sessions.prober import RankPairs, bytes_of, first_ranks, hosts_by_rank
from dlcpd.daemon.sessions.session import LocalSession
from dlcpd.planning.passive import (
    FlowRates,
    between_hosts,
    by_rack,
    measured,
    planned,
    relative,
    with_rates,
)
from dlcpd.planning.replan import PROBE_SECONDS, TICK, WINDOW, Decision, ReplanRule
from dlcpd.planning.unseen import ends, pairs_to_probe
from dlcpd.schedules.derive import gain_over
from dlcpd.schedules.network import job_network


@dataclass(slots=True)
class Watched:
    """One session. `flows`: bit/s between ranks in their last windows, and when rank 0, which alone
    collects them, was told."""

    session: LocalSession
    meter: FlowRates = field(default_factory=FlowRates)
    flows: dict[tuple[int, int], tuple[int, float]] = field(default_factory=dict)
    rule: ReplanRule | None = None  # of rank 0
    probing: "asyncio.Task[None] | None" = None  # links without traffic


class Replanner:
    """Sessions with a network, while enabled. `tell` passes the rates of this rank's flows to rank
    0; `propose` has rank 0 offer a network, and does nothing while it offers another; `probe` has
    ranks send bytes to others beside the job's operations."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        engines: Engines,
        *,
        tell: Callable[[LocalSession, list[RateRow]], None],
        propose: Callable[[LocalSession, Hosts], bool],
        probe: Callable[[LocalSession, RankPairs], Awaitable[RankPairs]],
    ) -> None:
        self._enabled = False
        self._loop, self._engines, self._tell, self._propose = loop, engines, tell, propose
        self._probe = probe
        self._watched: dict[int, Watched] = {}  # by session
        self._task: asyncio.Task[None] | None = None

    def enable(self, *, wanted: bool) -> None:
        """Measure from now on, or no longer."""
        self._enabled = wanted
        if wanted and self._watched and (self._task is None or self._task.done()):
            self._task = self._loop.create_task(self._measure())

    def begin(self, session: LocalSession) -> None:
        """A session is open."""
        self._watched[session.number] = Watched(session)
        self.enable(wanted=self._enabled)

    def ends(self, session: LocalSession) -> None:
        """A session is over; one that is not known is no error."""
        watched = self._watched.pop(session.number, None)
        if watched is not None and watched.probing is not None:
            watched.probing.cancel()

    def gone(self, session: LocalSession, rank: int) -> None:
        """A peer has left the job. Without rank 0 nothing is offered any more."""
        watched = self._watched.get(session.number)
        if not rank:
            self.ends(session)
        elif watched is not None and watched.rule is not None:
            kept = planned(present_hosts(session))
            watched.rule.gone([link for link in planned(session.network) if link not in kept])

    def settled(self, session: LocalSession, *, adopted: bool) -> None:
        """An offer has ended: a pause follows. If it was adopted, its rates are those planned."""
        watched = self._watched.get(session.number)
        if watched is not None and watched.rule is not None:
            if adopted:
                watched.rule.adopted(planned(present_hosts(session)), self._loop.time())
            else:
                watched.rule.refused(self._loop.time())

    def heard(self, session: LocalSession, rank: int, rows: Sequence[RateRow]) -> None:
        """The rates of the flows of a rank in its last window. They hold for WINDOW, since flows
        that were not busy are not among them."""
        watched = self._watched.get(session.number)
        if watched is not None and self._enabled:
            ranks, now = {0, *session.membership.links}, self._loop.time()
            told = {(rank, row.rank): (row.bps, now) for row in rows if row.rank in ranks}
            watched.flows |= told

    async def _measure(self) -> None:
        """Every TICK seconds, while there are sessions."""
        while self._enabled and self._watched:
            await asyncio.sleep(TICK)
            report = await self._engines.report(0)
            sessions = report.get("sessions", {})
            for watched in list(self._watched.values()):
                row = sessions.get(str(watched.session.number))
                if row is not None and watched.session.network:
                    rates = watched.meter.window(row)
                    self._tell(watched.session, [RateRow(*rate) for rate in rates.items()])
            for watched in list(self._watched.values()):
                if watched.session.membership.rank == 0 and watched.session.network:
                    self._judge(watched)

    def _judge(self, watched: Watched) -> None:
        """A window of each rank has ended."""
        session, now = watched.session, self._loop.time()
        hosts = present_hosts(session)
        if watched.rule is None:
            watched.rule = ReplanRule(planned(hosts))
        # The hosts' windows do not end at the same time, and a message may come late.
        watched.flows = {of: row for of, row in watched.flows.items() if row[1] > now - WINDOW}
        host_of = hosts_by_rank(session)
        rows = {of: row[0] for of, row in watched.flows.items() if host_of.keys() >= set(of)}
        flows = between_hosts(rows, host_of)
        found, plan = dict[str, int](), watched.rule.planned
        for members in by_rack(hosts):
            links = planned(members).keys() & plan.keys()
            found |= relative(measured(members, flows), {link: plan[link] for link in links})
        log.debug("link_rates", session=session.number, rates=found)
        rates = watched.rule.window(found, now)
        free = watched.probing is None or watched.probing.done()
        if flows and free and (due := watched.rule.to_probe(now)):
            watched.probing = self._loop.create_task(self._look(watched, due, flows))
        if not rates:
            return
        offered = with_rates(session.network, rates)
        present, better = job_network(session.network, session.version), job_network(offered)
        if present is None or better is None:
            return
        names = [host for host, _ in hosts]
        gain = float(gain_over(present.of(names), better.of(names)))
        if watched.rule.decide(rates, gain, now) is Decision.ADOPT:
            log.info("replan", session=session.number, gain=round(gain, 2), rates=rates)
            self._propose(session, offered)

    async def _look(
        self, watched: Watched, due: Collection[str], flows: Mapping[tuple[str, str], int]
    ) -> None:
        """Probe links that traffic says nothing of, one pair of hosts at a time."""
        session, rule = watched.session, watched.rule
        assert rule is not None  # noqa: S101  # it has named the links
        hosts, ranks = present_hosts(session), first_ranks(session)
        plan, racks = planned(hosts), [planned(members) for members in by_rack(hosts)]
        for a, b in (pair for rack in racks for pair in pairs_to_probe(due, rack, flows)):
            ways = {(ranks[a], ranks[b]): (a, b), (ranks[b], ranks[a]): (b, a)}
            rate = min(plan[link] for pair in ways.values() for link in ends(*pair))
            sizes = dict.fromkeys(ways, bytes_of(rate, PROBE_SECONDS))
            try:
                found = await self._probe(session, sizes)
            except DlcpError as exc:
                log.debug("probe_failed", session=session.number, why=exc)
                return
            log.debug("links_probed", session=session.number, rates=found)
            for way, pair in ways.items():
                rule.probed({link: found[way] for link in ends(*pair) if link in due})


def present_hosts(session: LocalSession) -> Hosts:
    """The hosts of a session's network that have a rank that has not left."""
    here = set(hosts_by_rank(session).values())
    return [(host, told) for host, told in session.network if host in here]
