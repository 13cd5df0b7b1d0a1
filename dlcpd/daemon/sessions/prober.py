"""Rank 0 probes the links between the hosts of its job, with the first rank of each host.

The pairs of a round are `dlcpd.planning.probe`'s. Each round is repeated: a few bytes say how
many take SECONDS. A step is repeated until all ranks have answered it (`probe_parts`). A round that
a rank could not finish is carried out once more: a host may be too busy for some seconds.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dlcpd.contract.errors import BadOperation, ProbeFailed, TooMany
from dlcpd.daemon import log
from dlcpd.daemon.engines import Engines
from dlcpd.daemon.peers.membership import Link, LinkState
from dlcpd.daemon.peers.peer_messages import MAX_PROBE, LinkProbeAnswer, LinkProbeAsk, ProbeStep
from dlcpd.daemon.peers.peers import Peers
from dlcpd.daemon.sessions.adoption import Hosts
from dlcpd.daemon.sessions.probe_parts import DEADLINE, REPEAT, ProbeParts, whole
from dlcpd.daemon.sessions.session import LocalSession, address_of
from dlcpd.daemon.sessions.table import SessionTable
from dlcpd.io.commands import NO_PEER
from dlcpd.planning.probe import ProbedLinks, probe
from dlcpd.planning.probe_rates import RoundRates, capacities
from dlcpd.planning.probe_rounds import SECONDS, Pairs

FIRST_BYTES: Final = 128 << 10  # of the first measurement of a pair: 10 ms at 100 Mbit/s
MOST_TIMES: Final = 3  # that a round is carried out
ENOUGH: Final = 1.5  # a measurement of two thirds of SECONDS is not repeated
MARGIN: Final = 2.0  # seconds that an answer may come after DEADLINE
END_WAIT: Final = 1.0  # seconds for the answers to END
MOST_REPEATED: Final = 2  # rounds of a probe that are carried out once more: 2 x DEADLINE at most
BITS: Final = 8

Pair = tuple[int, int]  # sender and receiver, ranks
RankPairs = Mapping[Pair, int]


class Step(NamedTuple):
    """A LinkProbeAsk without its ranks and serial."""

    step: ProbeStep
    target: int = NO_PEER
    out_bytes: int = 0
    source: int = NO_PEER
    in_bytes: int = 0
    idle: bool = True


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of a probe."""

    hosts: Hosts  # as in OpenSession
    racks: str  # in words, how they were found
    beside: tuple[str, ...]  # jobs whose traffic ran beside it
    rounds: int
    seconds: float


@dataclass(slots=True)
class Lead:
    """The probe of one session."""

    session: LocalSession
    held: bool  # clients wait for a probe that is about to begin
    running: bool = False
    repeated: int = 0  # rounds of the probe that runs
    serial: int = 1  # of the last step; a WAIT before the first is answered with it
    step: ProbeStep = ProbeStep.END
    awaited: dict[int, "asyncio.Future[LinkProbeAnswer]"] = field(default_factory=dict)  # by rank


class RoundFailed(ProbeFailed):
    """A rank has answered that it could not do its part of a step."""


class ProbeLeader:
    """Sessions of rank 0 that are open. `parts` are those of all local ranks."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        table: SessionTable,
        *,
        peers: Peers,
        engines: Engines,
    ) -> None:
        self._loop, self._peers = loop, peers
        self.parts = ProbeParts(loop, table, peers=peers, engines=engines, led=self.answered)
        self._leads: dict[int, Lead] = {}  # by session

    def begin(self, session: LocalSession, *, held: bool) -> None:
        """All ranks serve the session. `held`: their clients wait until `release`, or the end of a
        probe."""
        self.parts.begin(session)
        if not session.membership.rank:
            self._leads[session.number] = Lead(session, held)

    def release(self, session: LocalSession) -> None:
        """Clients wait no longer: the next WAIT of their daemons is answered with END."""
        if (lead := self._leads.get(session.number)) is not None:
            lead.held = False

    def ends(self, session: LocalSession) -> None:
        """The session is over; one that is not known is no error."""
        self.parts.ends(session)
        if (lead := self._leads.pop(session.number, None)) is not None:
            for rank in lead.awaited:
                _fail(lead, rank, "the session is over")

    def gone(self, session: LocalSession, link: Link) -> None:
        """A peer has left the job."""
        if not link.rank:
            self.parts.leader_gone(session)
        if (lead := self._leads.get(session.number)) is not None:
            _fail(lead, link.rank, "it has left")

    def answered(self, session: LocalSession, rank: int, answer: LinkProbeAnswer) -> bool:
        """A rank has answered. False: it is late, or of a rank that was not asked."""
        lead = self._leads.get(session.number)
        if lead is None:
            return False
        if answer.step is ProbeStep.WAIT:
            if not (lead.running or lead.held):
                self._ask(lead, rank, lead.serial, Step(ProbeStep.END))
            return True
        future = lead.awaited.get(rank)
        if future is None or (answer.serial, answer.step) != (lead.serial, lead.step):
            return False
        if not future.done():
            future.set_result(answer)
        return True

    async def measure(self, session: LocalSession) -> ProbeResult:
        """Probe all links of a job that runs no operations. Raises: BadOperation, TooMany,
        ProbeFailed."""
        lead, ranks = self._leads.get(session.number), first_ranks(session)
        here = hosts_by_rank(session)
        if lead is None:
            raise BadOperation(f"{session}: rank 0 leads the probe of its job: ask its daemon")
        if gone := [link for rank, link in session.membership.links.items() if rank not in here]:
            raise BadOperation(f"{session}: {gone[0]} has left; join the job again to probe it")
        if len(ranks) == 1:
            raise BadOperation(f"{session}: all ranks are on one host, so there is no link")
        if lead.running:
            raise TooMany(f"{session}: a probe of the job runs already")
        lead.running, lead.repeated, began = True, 0, self._loop.time()
        try:
            found, rounds = await self._rounds(lead, list(ranks.values()))
        finally:
            lead.running = False
            beside = await self._end(lead)
        if found.rates.unseen:
            raise ProbeFailed(f"host {list(ranks)[found.rates.unseen[0]]}: no bytes of it arrived")
        hosts = list(zip(ranks, capacities(found.racks, found.rates), strict=True))
        return ProbeResult(hosts, found.reason, beside, rounds, self._loop.time() - began)

    async def _rounds(self, lead: Lead, order: list[int]) -> tuple[ProbedLinks, int]:
        """`order`: the first rank of each host. Raises: ProbeFailed."""
        told = await self._all(lead, {rank: Step(ProbeStep.BEGIN) for rank in order})
        first = [{row.first for row in told[rank].routes} - {""} for rank in order]
        between = {
            (order.index(rank), order.index(row.rank)): row.routers
            for rank in order
            for row in told[rank].routes
            if row.rank in order
        }
        running = probe(first, between)
        answer: RoundRates | None = None
        count = 0
        while True:
            try:
                pairs = next(running) if answer is None else running.send(answer)
            except StopIteration as over:
                return over.value, count
            answer, count = await self._round(lead, order, pairs), count + 1

    async def _round(self, lead: Lead, order: list[int], pairs: Pairs) -> RoundRates:
        """Repeat a round until it has taken long enough. A busy host can only make a rate lower,
        so the highest counts."""
        ranks = {pair: (order[pair[0]], order[pair[1]]) for pair in pairs}
        sizes, found = dict.fromkeys(ranks.values(), FIRST_BYTES), dict[tuple[int, int], int]()
        for attempt in range(MOST_TIMES):
            rates, before = await self._repeated(lead, sizes), sizes
            for pair, rate in rates.items() if attempt else ():
                found[pair] = max(rate, found.get(pair, 0))
            sizes = {pair: bytes_of(rate, SECONDS) for pair, rate in rates.items()}
            if attempt and all(size <= ENOUGH * before[pair] for pair, size in sizes.items()):
                break
        return {pair: found[of] for pair, of in ranks.items()}

    async def _repeated(self, lead: Lead, sizes: RankPairs) -> dict[Pair, int]:
        """`_exchange`, until no rank fails. Raises: ProbeFailed: one has left or does not answer,
        or more than MOST_REPEATED of all exchanges of the probe failed."""
        while True:
            try:
                return await self._exchange(lead, sizes, idle=True)
            except RoundFailed as exc:
                ranks = len(lead.session.membership.links) + 1
                whole = len(hosts_by_rank(lead.session)) == ranks
                open_ = self._leads.get(lead.session.number) is lead
                if not (whole and open_) or lead.repeated == MOST_REPEATED:
                    raise
                lead.repeated += 1
                log.info("probe_repeated", session=lead.session.number, why=exc)

    async def beside(self, session: LocalSession, sizes: RankPairs) -> RankPairs:
        """Have ranks send bytes to others while the job runs operations: as `_exchange`. Raises:
        TooMany, ProbeFailed."""
        lead = self._leads.get(session.number)
        if lead is None or lead.running:
            raise TooMany(f"{session}: a probe of the job runs already")
        lead.running = True
        try:
            return await self._exchange(lead, sizes, idle=False)
        finally:
            lead.running = False

    async def _exchange(self, lead: Lead, sizes: RankPairs, *, idle: bool) -> dict[Pair, int]:
        """Have ranks send bytes to others at the same time; returns bit/s by (sender, receiver).
        A rank sends to one and receives from one at most. `idle`: no operation of the job may run.
        Raises: ProbeFailed."""
        steps = dict[int, Step]()
        for (sender, receiver), size in sizes.items():
            new = Step(ProbeStep.ROUND, idle=idle)
            steps[sender] = steps.get(sender, new)._replace(target=receiver, out_bytes=size)
            steps[receiver] = steps.get(receiver, new)._replace(source=sender, in_bytes=size)
        answers = await self._all(lead, steps)
        return {pair: max(answers[pair[1]].bps, 1) for pair in sizes}

    async def _end(self, lead: Lead) -> tuple[str, ...]:
        """Tell all ranks that the probe is over; returns jobs that ran beside it."""
        if self._leads.get(lead.session.number) is not lead:
            return ()
        ranks = (0, *lead.session.membership.links)
        answers = dict[int, LinkProbeAnswer]()
        with suppress(ProbeFailed):  # such a rank waits no longer for it
            steps = {rank: Step(ProbeStep.END) for rank in ranks}
            answers = await self._all(lead, steps, END_WAIT)
        return tuple(dict.fromkeys(one.beside for one in answers.values() if one.beside))

    async def _all(
        self, lead: Lead, steps: Mapping[int, Step], within: float = DEADLINE + MARGIN
    ) -> dict[int, LinkProbeAnswer]:
        """The answers of these ranks. Raises: ProbeFailed: one cannot, or does not answer."""
        lead.serial, lead.step = lead.serial + 1, next(iter(steps.values())).step
        lead.awaited = awaited = {rank: self._loop.create_future() for rank in steps}
        serial, until = lead.serial, self._loop.time() + within
        waiting = set(awaited.values())
        while waiting and (left := until - self._loop.time()) > 0:
            for rank, step in steps.items():
                if not awaited[rank].done():
                    self._ask(lead, rank, serial, step)
            waiting = {future for future in waiting if not future.done()}
            if waiting:
                done, waiting = await asyncio.wait(
                    waiting, timeout=min(REPEAT, left), return_when=asyncio.FIRST_COMPLETED
                )
                if any(future.result().why for future in done):
                    break
        lead.awaited = {}
        for rank, future in sorted(awaited.items(), key=lambda one: not one[1].done()):
            why = future.result().why if future.done() else "no answer; is its dlcpd an older one?"
            if why:
                link = lead.session.membership.links.get(rank)
                kind = RoundFailed if future.done() else ProbeFailed
                raise kind(f"{link or lead.session}: {why}")
        return {rank: future.result() for rank, future in awaited.items()}

    def _ask(self, lead: Lead, rank: int, serial: int, step: Step) -> None:
        membership = lead.session.membership
        link = membership.links.get(rank)
        names = (membership.job, 0, 0, 1, 0) if link is None else membership.names_to(link)
        what, target, out_bytes, source, in_bytes, idle = step
        ask = LinkProbeAsk(*names, serial, what, target, out_bytes, source, in_bytes, idle)
        if link is not None:
            self._peers.send(address_of(link), ask)
        elif not rank:
            self.parts.asked(lead.session, ask)


def first_ranks(session: LocalSession) -> dict[str, int]:
    """The first rank of each host that has not left, in the order of `Membership.capacities`."""
    found = dict[str, int]()
    for rank, host in sorted(hosts_by_rank(session).items()):
        found.setdefault(host, rank)
    return found


def hosts_by_rank(session: LocalSession) -> dict[int, str]:
    """The host of each rank that has not left."""
    links = session.membership.links.items()
    found = {rank: link.host for rank, link in links if link.state is not LinkState.GONE}
    return found | {session.membership.rank: session.membership.host}


def bytes_of(rate: int, seconds: float) -> int:
    """Bytes that a flow of this rate, bit/s, moves in that time, within the limits of a round."""
    return whole(min(max(round(rate * seconds / BITS), FIRST_BYTES), MAX_PROBE))


def _fail(lead: Lead, rank: int, why: str) -> None:
    future = lead.awaited.get(rank)
    if future is not None and not future.done():
        future.set_result(LinkProbeAnswer("", 0, 0, 1, 0, 1, lead.step, 0, [], "", why))
