"""The networks of sessions: at their beginning, and as running jobs adopt others."""

import asyncio
from typing import Final

from dlcpd.daemon import log
from dlcpd.daemon.config.tables import PlannerTable
from dlcpd.daemon.engines import Engines
from dlcpd.daemon.peers.membership import Link
from dlcpd.daemon.peers.peer_messages import (
    MAX_PEER_FRAME,
    MAX_WHY,
    HostNews,
    HostRates,
    LinkProbeAnswer,
    LinkProbeAsk,
    LinkRow,
    NetworkRow,
    PlanAnswer,
    PlanAsk,
    PlanMessage,
    PlanStep,
    StreamRow,
    pack,
)
from dlcpd.daemon.peers.peers import Peers
from dlcpd.daemon.sessions.adoption import (
    Follower,
    Hosts,
    Leader,
    Offer,
    Output,
    Settle,
    StepAnswer,
    StepAsk,
)
from dlcpd.daemon.sessions.planning_state import (
    Planning,
    ask_to,
    log_plan,
    no_plan,
    set_timer,
)
from dlcpd.daemon.sessions.probing import Hold, JobProbes
from dlcpd.daemon.sessions.replanning import Replanner
from dlcpd.daemon.sessions.session import LocalSession, address_of
from dlcpd.daemon.sessions.table import SessionTable
from dlcpd.io.commands import Begun, OfferNetwork, SettleNetwork
from dlcpd.io.control_events import NetworkPromised
from dlcpd.schedules.derive import effect
from dlcpd.schedules.network import BadNetwork, HostCapacity, job_network

NEWS_FIRST: Final = 0.5  # seconds until news of this host are repeated; then doubled
NEWS_MOST: Final = 60.0  # the last repetition: rank 0's daemon does not know them
COLLECT: Final = 0.5  # seconds after news in which those of other hosts join one offer


class Planner:
    """Has all engines of a job derive each operation from the same network.

    `capacity` is this host's: sessions that join tell it, and open ones get its changes.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        table: SessionTable,
        *,
        peers: Peers,
        engines: Engines,
    ) -> None:
        self.capacity: HostCapacity | None = None
        self._loop, self._table, self._peers, self._engines = loop, table, peers, engines
        self._open: dict[int, Planning] = {}  # by session
        self.probing = JobProbes(
            loop,
            table,
            peers=peers,
            engines=engines,
            told=lambda session: self._open[session.number].told,
            propose=self._propose_better,
        )
        self.replanner = Replanner(
            loop,
            engines,
            tell=self._tell_rates,
            propose=self._propose_better,
            probe=self.probing.prober.beside,
        )

    def configure(self, table: PlannerTable) -> None:
        """Settings, from now on; `capacity` apart."""
        self.replanner.enable(wanted=table.replan)
        self.probing.wanted = table.probe

    # --- sessions -------------------------------------------------------------------------

    def at_join(self, session: LocalSession) -> None:
        """Keep what the hosts told of their links, if that is a network, and its effect."""
        told = session.membership.capacities
        try:
            network = job_network(told)
        except BadNetwork as exc:
            session.plan = f"none: {exc}"
            no_plan(session, str(exc))
            return
        session.plan = "none: no host told its rate" if network is None else effect(network)
        if network is not None:
            session.network = [(host, each) for host, each in told if each is not None]
            log_plan(session)

    def joined(self, session: LocalSession, go: Hold) -> None:
        """All ranks serve the session: from now on the job can adopt other networks. `go` lets the
        client in, perhaps after a probe."""
        membership = session.membership
        told = dict(membership.capacities)
        follower = Follower(list(told), membership.engines_used)
        made = Planning(follower, told, proposed=session.network)
        if membership.rank == 0:
            made.leader = Leader({0, *membership.links})
        self._open[session.number] = made
        self.replanner.begin(session)
        if self.capacity != membership.capacity:
            self._host_news(session, made)
        self.probing.joined(session, go)

    def host_changed(self, capacity: HostCapacity | None) -> None:
        """This host's capacity was read again: tell it even if it is the same, since rank 0 may
        have failed to settle the network."""
        known = capacity is not None or self.capacity is not None
        self.capacity = capacity
        for session in self._table if known else ():
            if (made := self._open.get(session.number)) is not None:
                self._host_news(session, made)

    def gone(self, session: LocalSession, link: Link, *, leaving: bool = False) -> None:
        """A peer has left the job. `leaving`: it will, after the operations that it has begun."""
        self.replanner.gone(session, link.rank)
        self.probing.gone(session, link)
        made = self._open.get(session.number)
        if made is None:
            return
        if made.leader is not None:
            made.leader.on_gone(link.rank, self._loop.time(), leaving=leaving)
            self._go_on(session, made)
        if link.rank == 0:
            self._carry_out(session, made, made.follower.on_leader_gone())

    def ends(self, session: LocalSession) -> None:
        """The session adopts nothing more. Rank 0 tells the others how the present offer ends."""
        self.replanner.ends(session)
        self.probing.ends(session)
        made = self._open.pop(session.number, None)
        if made is None or made.leader is None or (word := made.leader.last_word()) is None:
            return
        for rank in sorted(made.leader.ranks - {0}):
            self._ask(session, made, rank, word)

    # --- messages -------------------------------------------------------------------------

    def message(self, session: LocalSession, link: Link, message: PlanMessage) -> bool:
        """A peer's message. False: it does not concern this session, or not yet."""
        made = self._open.get(session.number)
        if made is None or not session.membership.concerns(link, message):
            return False
        if isinstance(message, PlanAsk):
            if link.rank:
                return False
            if message.step is PlanStep.HEARD:
                made.confirmed = max(made.confirmed, message.version)
                return True
            hosts = [(row.host, row.capacity) for row in message.network]
            asked = (hosts, message.digest, message.firsts, message.rest)
            ask = StepAsk(message.version, message.step, *asked)
            self._carry_out(session, made, made.follower.on_ask(ask))
        elif isinstance(message, LinkProbeAsk):
            return not link.rank and self.probing.prober.parts.asked(session, message)
        elif isinstance(message, LinkProbeAnswer):
            return self.probing.prober.answered(session, link.rank, message)
        elif made.leader is None:
            return False
        elif isinstance(message, PlanAnswer):
            answer = StepAnswer(message.version, message.step, message.limits, message.why)
            self._answered(session, made, link.rank, answer)
        elif isinstance(message, HostRates):
            self.replanner.heard(session, link.rank, message.out, message.into)
        else:
            self._heard_news(session, made, link, message)
        return True

    def promised(self, session: LocalSession, engine: int, event: NetworkPromised) -> None:
        """An engine has answered an offer."""
        made = self._open.get(session.number)
        if made is None or engine not in session.engines:
            return
        position = session.engines.index(engine)
        limits = [StreamRow(position, *row) for row in event.limits]
        answer = StepAnswer(event.version, PlanStep.PROMISE, limits, event.why[:MAX_WHY])
        self._carry_out(session, made, made.follower.on_promised(position, answer))

    def _answered(
        self, session: LocalSession, made: Planning, rank: int, answer: StepAnswer
    ) -> None:
        assert made.leader is not None  # noqa: S101  # only rank 0 gets answers
        made.leader.on_answer(rank, answer, self._loop.time())
        self._go_on(session, made)

    # --- this host's capacity ---------------------------------------------------------------

    def _host_news(self, session: LocalSession, made: Planning) -> None:
        """Tell rank 0 this host's capacity."""
        membership = session.membership
        membership.capacity = self.capacity
        if made.leader is not None:
            made.told[membership.host] = self.capacity
            self._collect(session, made)
        else:
            made.serial += 1
            self._tell(session, made, NEWS_FIRST)

    def _tell(self, session: LocalSession, made: Planning, delay: float) -> None:
        link = session.membership.links.get(0)
        if made.confirmed >= made.serial or link is None or session.number not in self._open:
            return
        names = session.membership.names_to(link)
        capacity = [] if self.capacity is None else [self.capacity]
        self._peers.send(address_of(link), HostNews(*names, made.serial, capacity))
        if delay <= NEWS_MOST:
            timer = self._loop.call_later(delay, self._tell, session, made, 2 * delay)
            set_timer(session, "news", timer)

    def _heard_news(
        self, session: LocalSession, made: Planning, link: Link, news: HostNews
    ) -> None:
        if news.serial > made.heard.get(link.rank, 0):
            made.heard[link.rank] = news.serial
            made.told[link.host] = news.capacity[0] if news.capacity else None
            self._collect(session, made)
        self._ask(session, made, link.rank, StepAsk(news.serial, PlanStep.HEARD))

    # --- rank 0 -----------------------------------------------------------------------------

    def _collect(self, session: LocalSession, made: Planning) -> None:
        set_timer(session, "offer", self._loop.call_later(COLLECT, self._propose, session, made))

    def _propose(self, session: LocalSession, made: Planning) -> None:
        """Offer the network that the hosts have told. If it is none, the old one stays."""
        try:
            network = job_network(list(made.told.items()))
        except BadNetwork as exc:
            no_plan(session, str(exc))
            return
        known = [(host, told) for host, told in made.told.items() if told is not None]
        if network is None or known == made.proposed or made.leader is None:
            return
        rows = [NetworkRow.of(host, told) for host, told in known]
        link = next(iter(session.membership.links.values()), None)
        ask = StepAsk(made.leader.version, PlanStep.OFFER, digest=network.digest)
        if link is not None and len(pack(ask_to(session, link, ask, rows))) > MAX_PEER_FRAME:
            no_plan(session, f"the network of {len(rows)} hosts is too long to be offered")
            return
        self._offer(session, made, known)

    def _offer(self, session: LocalSession, made: Planning, known: Hosts) -> None:
        if made.leader is None:
            return
        made.proposed = known
        made.leader.propose(known, self._loop.time())
        self._go_on(session, made)

    def _propose_better(self, session: LocalSession, network: Hosts) -> bool:
        """Offer a network that was measured. False: rank 0 offers another one, or cannot now."""
        made = self._open.get(session.number)
        if made is None or made.leader is None or made.leader.busy or made.leader.leaving:
            return False
        self._offer(session, made, network)
        return made.leader.busy

    def _tell_rates(self, session: LocalSession, out: LinkRow, into: LinkRow) -> None:
        link = session.membership.links.get(0)
        if link is None:
            self.replanner.heard(session, 0, out, into)
        elif session.number in self._open:
            names = session.membership.names_to(link)
            self._peers.send(address_of(link), HostRates(*names, out, into))

    def _go_on(self, session: LocalSession, made: Planning) -> None:
        """Set the timer of the present offer."""
        leader = made.leader
        if leader is None or session.number not in self._open:
            return
        if leader.news:
            made.proposed = session.network
            self.replanner.settled(session, adopted=False)
            log.warning("plan_kept", session=session.number, why=leader.take_news())
        if (at := leader.due_at) is not None:
            set_timer(session, "plan", self._loop.call_at(at, self._send_due, session, made))

    def _send_due(self, session: LocalSession, made: Planning) -> None:
        if made.leader is None or session.number not in self._open:
            return
        for rank, ask in made.leader.due(self._loop.time()):
            self._ask(session, made, rank, ask)
        self._go_on(session, made)

    def _ask(self, session: LocalSession, made: Planning, rank: int, ask: StepAsk) -> None:
        """Pass a step to a rank, this one included."""
        if not rank:
            self._carry_out(session, made, made.follower.on_ask(ask))
        elif (link := session.membership.links.get(rank)) is not None:
            rows = [NetworkRow.of(host, told) for host, told in ask.network]
            self._peers.send(address_of(link), ask_to(session, link, ask, rows))

    # --- every rank -------------------------------------------------------------------------

    def _carry_out(self, session: LocalSession, made: Planning, outputs: list[Output]) -> None:
        for output in outputs:
            match output:
                case StepAnswer():
                    self._answer(session, made, output)
                case Offer(version, network):
                    command = OfferNetwork(session.number, version, list(network))
                    for engine in session.engines[: session.membership.engines_used]:
                        self._engines.send(engine, command)
                case Settle():
                    self._settle(session, output)

    def _answer(self, session: LocalSession, made: Planning, answer: StepAnswer) -> None:
        if made.leader is not None:
            self._answered(session, made, 0, answer)
            return
        link = session.membership.links[0]
        names = session.membership.names_to(link)
        limits = list(answer.limits)
        message = PlanAnswer(*names, answer.version, answer.step, limits, answer.why)
        self._peers.send(address_of(link), message)

    def _settle(self, session: LocalSession, settle: Settle) -> None:
        for position in range(session.membership.engines_used):
            mine = [row for row in settle.firsts if row.engine == position]
            firsts = [Begun(row.stream, row.operation) for row in mine]
            command = SettleNetwork(session.number, settle.version, firsts, settle.rest)
            self._engines.send(session.engines[position], command)
        network = job_network(settle.network, settle.version)
        if network is not None:
            session.network, session.version = list(settle.network), settle.version
            session.plan = effect(network)
            log_plan(session)
            self.replanner.settled(session, adopted=True)
