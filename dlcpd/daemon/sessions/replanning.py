"""Measures the links of running jobs by their own traffic, and has rank 0 offer better plans."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final

from dlcpd.contract.errors import DlcpError
from dlcpd.daemon import log
from dlcpd.daemon.engines import Engines
from dlcpd.daemon.peers.peer_messages import LinkRow
from dlcpd.daemon.sessions.adoption import Hosts
from dlcpd.daemon.sessions.prober import RankPairs, bytes_of, first_ranks, hosts_by_rank
from dlcpd.daemon.sessions.session import LocalSession
from dlcpd.planning.passive import LinkRates, by_rack, levelled, measured, planned, with_rates
from dlcpd.planning.replan import (
    CHANGED,
    LOOK_SECONDS,
    PROBE_SECONDS,
    TICK,
    WINDOW,
    Decision,
    ReplanRule,
)
from dlcpd.planning.unseen import ends, pairs_to_probe
from dlcpd.schedules.derive import gain_over
from dlcpd.schedules.network import MAX_RATE, job_network

SETTLED: Final = 2 * TICK  # seconds from a probe until all hosts have told a window that has it


@dataclass(slots=True)
class Watched:
    """One session. `told`: by link, its last window and when it came, of rank 0, which alone
    collects them."""

    session: LocalSession
    told: dict[str, tuple[LinkRates, float]] = field(default_factory=dict)
    rule: ReplanRule | None = None  # of rank 0
    probing: "asyncio.Task[None] | None" = None  # links that traffic says too little of

    def plans(self, hosts: Hosts) -> list[dict[str, int]]:
        """By switch, the rates of its links that the present plan assumes."""
        plan = {} if self.rule is None else self.rule.planned
        racks = (planned(members).keys() & plan.keys() for members in by_rack(hosts))
        return [{link: plan[link] for link in sorted(links)} for links in racks if links]

    def most(self, link: str) -> int:
        """Bit/s that a link has at least, as its host told last."""
        return self.told[link][0].most if link in self.told else 0


class Replanner:
    """Sessions with a network, while enabled. `tell` passes both directions of this host's link to
    rank 0; `propose` has rank 0 offer a network, and does nothing while it offers another; `probe`
    has ranks send each other bytes while the job's operations run."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        engines: Engines,
        *,
        tell: Callable[[LocalSession, LinkRow, LinkRow], None],
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

    def heard(self, session: LocalSession, rank: int, out: LinkRow, into: LinkRow) -> None:
        """Both directions of the link of a rank's host, in its last window."""
        watched, host = self._watched.get(session.number), hosts_by_rank(session).get(rank)
        if watched is not None and self._enabled and host is not None:
            now = self._loop.time()
            watched.told[f"{host} out"] = LinkRates(*out), now
            watched.told[f"{host} in"] = LinkRates(*into), now

    async def _measure(self) -> None:
        """Every TICK seconds, while there are sessions."""
        while self._enabled and self._watched:
            await asyncio.sleep(TICK)
            links = (await self._engines.report(0)).get("links")
            for watched in list(self._watched.values()):
                if links is not None and watched.session.network:
                    others = _others(watched.session)
                    out, into = (_row(links[way], others) for way in ("out", "in"))
                    self._tell(watched.session, out, into)
            for watched in list(self._watched.values()):
                if watched.session.membership.rank == 0 and watched.session.network:
                    self._judge(watched)

    def _judge(self, watched: Watched) -> None:
        """A window of each host has ended."""
        session, now = watched.session, self._loop.time()
        hosts = present_hosts(session)
        if watched.rule is None:
            watched.rule = ReplanRule(planned(hosts))
        # A message may come late.
        watched.told = {of: row for of, row in watched.told.items() if row[1] > now - WINDOW}
        found = dict[str, int]()
        for plan in watched.plans(hosts):
            told = {link: watched.told[link][0] for link in plan if link in watched.told}
            found |= measured(told, plan)
        log.debug("link_rates", session=session.number, rates=found)
        rates = watched.rule.window(found, now)
        free = watched.probing is None or watched.probing.done()
        busy = any(row.most for row, _ in watched.told.values())
        if busy and free and (due := watched.rule.to_probe(now)):
            watched.probing = self._loop.create_task(self._look(watched, due))
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

    async def _look(self, watched: Watched, due: Collection[str]) -> None:
        """Probe links that traffic says too little of, one pair of hosts at a time. The bytes
        on a link meanwhile, the job's data included, are in the window that its host tells next."""
        session, rule = watched.session, watched.rule
        assert rule is not None  # noqa: S101  # it has named the links
        ranks, found = first_ranks(session), dict[str, int]()
        plans = watched.plans(present_hosts(session))
        for plan in plans:
            for a, b in pairs_to_probe(due, plan):
                ways = {(ranks[a], ranks[b]): (a, b), (ranks[b], ranks[a]): (b, a)}
                links = [link for pair in ways.values() for link in ends(*pair)]
                rate = min(max(plan[link], watched.most(link)) for link in links)
                faster = any(watched.most(link) >= plan[link] * (1 + CHANGED) for link in links)
                seconds = LOOK_SECONDS if faster else PROBE_SECONDS
                sizes = dict.fromkeys(ways, bytes_of(rate, seconds))
                try:
                    rates = await self._probe(session, sizes)
                except DlcpError as exc:
                    log.debug("probe_failed", session=session.number, why=exc)
                    return
                for way, pair in ways.items():
                    found |= {link: rates[way] for link in ends(*pair) if link in due}
        await asyncio.sleep(SETTLED)
        for plan in plans:
            here = {link: rate for link, rate in found.items() if link in plan}
            most = {link: max(rate, watched.most(link)) for link, rate in here.items()}
            log.debug("links_probed", session=session.number, rates=most)
            rule.probed({link: levelled(rate, plan) for link, rate in most.items()})


def _row(link: dict[str, Any], others: int) -> LinkRow:
    """A direction of a link as its engines report it. It is known to be the limit if all `others`
    waited for it."""
    part = link["part"] if link["hosts"] >= others else 0
    return LinkRow(min(link["most"], MAX_RATE), min(link["rate"], MAX_RATE), part)


def _others(session: LocalSession) -> int:
    """The other hosts of this host's switch."""
    hosts = dict(present_hosts(session))
    here = hosts.get(session.membership.host)
    return sum(here is not None and told.rack == here.rack for told in hosts.values()) - 1


def present_hosts(session: LocalSession) -> Hosts:
    """The hosts of a session's network that have a rank that has not left."""
    here = set(hosts_by_rank(session).values())
    return [(host, told) for host, told in session.network if host in here]
