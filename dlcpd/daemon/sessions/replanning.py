"""Measures the links of running jobs by their own traffic, and has rank 0 offer better plans."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dlcpd.daemon import log
from dlcpd.daemon.engines import Engines
from dlcpd.daemon.peers.peer_messages import RateRow
from dlcpd.daemon.sessions.adoption import Hosts
from dlcpd.daemon.sessions.session import LocalSession
from dlcpd.planning.passive import FlowRates, between_hosts, measured, planned, relative, with_rates
from dlcpd.planning.replan import WINDOW, Decision, ReplanRule
from dlcpd.schedules.derive import gain_over
from dlcpd.schedules.network import job_network


@dataclass(slots=True)
class Watched:
    """One session. `flows`: bit/s between ranks in this window, which rank 0 alone collects."""

    session: LocalSession
    meter: FlowRates = field(default_factory=FlowRates)
    flows: dict[tuple[int, int], int] = field(default_factory=dict)
    rule: ReplanRule | None = None  # of rank 0


class Replanner:
    """Sessions on one switch, while enabled. `tell` passes the rates of this rank's flows to rank
    0; `propose` has rank 0 offer a network, and does nothing while it offers another."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        engines: Engines,
        *,
        tell: Callable[[LocalSession, list[RateRow]], None],
        propose: Callable[[LocalSession, Hosts], bool],
    ) -> None:
        self._enabled = False
        self._loop, self._engines, self._tell, self._propose = loop, engines, tell, propose
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
        self._watched.pop(session.number, None)

    def settled(self, session: LocalSession) -> None:
        """An offer has ended: a pause follows, and the rates of the job's network are planned."""
        watched = self._watched.get(session.number)
        if watched is not None and watched.rule is not None:
            watched.rule.adopted(planned(session.network), self._loop.time())

    def heard(self, session: LocalSession, rank: int, rows: Sequence[RateRow]) -> None:
        """The rates of the flows of a rank, in its last window."""
        watched = self._watched.get(session.number)
        if watched is not None and self._enabled:
            ranks = {0, *session.membership.links}
            watched.flows |= {(rank, row.rank): row.bps for row in rows if row.rank in ranks}

    async def _measure(self) -> None:
        """Every WINDOW seconds, while there are sessions."""
        while self._enabled and self._watched:
            await asyncio.sleep(WINDOW)
            report = await self._engines.report(0)
            sessions = report.get("sessions", {})
            for watched in list(self._watched.values()):
                row = sessions.get(str(watched.session.number))
                if row is not None and _measurable(watched.session):
                    rates = watched.meter.window(row)
                    self._tell(watched.session, [RateRow(*rate) for rate in rates.items()])
            for watched in list(self._watched.values()):
                if watched.session.membership.rank == 0 and _measurable(watched.session):
                    self._judge(watched)

    def _judge(self, watched: Watched) -> None:
        """A window of rank 0 ends."""
        session, now = watched.session, self._loop.time()
        hosts = session.network
        if watched.rule is None:
            watched.rule = ReplanRule(planned(hosts))
        membership = session.membership
        host_of = {rank: link.host for rank, link in membership.links.items()} | {
            0: membership.host
        }
        found, watched.flows = measured(hosts, between_hosts(watched.flows, host_of)), {}
        found = relative(found, watched.rule.planned)
        log.debug("link_rates", session=session.number, rates=found)
        rates = watched.rule.window(found, now)
        if not rates:
            return
        offered = with_rates(hosts, rates)
        present, better = job_network(hosts, session.version), job_network(offered)
        if present is None or better is None:
            return
        gain = float(gain_over(present, better))
        if watched.rule.decide(rates, gain, now) is Decision.ADOPT:
            log.info("replan", session=session.number, gain=round(gain, 2), rates=rates)
            self._propose(session, offered)


def _measurable(session: LocalSession) -> bool:
    """Racks are not: the uplink of a rack would count as a link of its hosts."""
    return bool(session.network) and not any(told.rack for _, told in session.network)
