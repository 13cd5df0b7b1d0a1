"""How all ranks of a job adopt a network: rank 0 leads, each rank follows. Pure, in virtual time.

    rank 0                        every rank (rank 0 too)
    OFFER network, version   ->   can it be used? it is kept
    PROMISE                  ->   each engine names its limits (dlcpd.requests.networks)
    ADOPT first operations   ->   the engines are told
    CANCEL                   ->   likewise: the old network stays

Rank 0 repeats a step until each rank has answered it, so loss, repetition and order of messages do
not matter. Before ADOPT, a refusal, GIVE_UP seconds, or a rank that leaves, cancels the offer.
After it nothing does: some engine may have begun an operation in the new network. A rank that has
promised waits for rank 0 alone; where rank 0 has left, it keeps the old network.

A rank that leaves delivers the operations that it has begun, in the old network, and promises
nothing. So nothing is offered until its Goodbye: then they are delivered, or fail on all ranks.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dlcpd.daemon.peers.peer_messages import MAX_WHY, PlanStep, StreamRow
from dlcpd.io.commands import MAX_BEGUN
from dlcpd.requests.networks import REST
from dlcpd.schedules.network import FIRST_VERSION, BadNetwork, HostCapacity, job_network

REPEAT_FIRST: Final = 0.1  # seconds until a step without an answer is repeated; then doubled
REPEAT_MOST: Final = 2.0
GIVE_UP: Final = 3.0  # seconds for all ranks to promise: engines may wait for that long

Hosts = Sequence[tuple[str, HostCapacity]]  # as in OpenSession


class StepAsk(NamedTuple):
    """A PlanAsk without its ranks."""

    version: int
    step: PlanStep
    network: Hosts = ()
    digest: bytes = b""
    firsts: Sequence[StreamRow] = ()
    rest: int = 0


class StepAnswer(NamedTuple):
    """A PlanAnswer without its ranks."""

    version: int
    step: PlanStep
    limits: Sequence[StreamRow] = ()
    why: str = ""


@dataclass(slots=True)
class Leader:
    """Rank 0 of a job with these `ranks`, itself among them."""

    ranks: set[int]
    version: int = FIRST_VERSION  # of the last offer
    news: str = ""  # why an offer was cancelled, until `take_news`
    _asked: StepAsk | None = None  # the step that some rank has yet to answer
    _waiting: set[int] = field(default_factory=set)  # these ranks
    _promised: dict[tuple[int, int], int] = field(default_factory=dict)  # greatest limits
    _next: Hosts = ()  # to be offered
    leaving: set[int] = field(default_factory=set)  # ranks that have yet to say Goodbye
    _repeat: float = 0.0  # seconds until the step is repeated
    _send_at: float = 0.0
    _until: float = 0.0  # the end of GIVE_UP

    @property
    def busy(self) -> bool:
        """Whether an offer is on its way."""
        return self._asked is not None

    @property
    def due_at(self) -> float | None:
        """When to call `due`; None: not before another call."""
        return None if self._asked is None else self._send_at

    def take_news(self) -> str:
        """Why an offer was cancelled, once."""
        news, self.news = self.news, ""
        return news

    def propose(self, network: Hosts, now: float) -> None:
        """Offer a network, after the present offer has ended. Only the newest is kept."""
        self._next = network
        self._start(now)

    def due(self, now: float) -> list[tuple[int, StepAsk]]:
        """The messages that are to be sent now, by rank."""
        asked = self._asked
        if asked is None or now < self._send_at:
            return []
        if asked.step in (PlanStep.OFFER, PlanStep.PROMISE) and now >= self._until:
            silent = ", ".join(map(str, sorted(self._waiting)[:8]))
            self._cancel(f"no answer of rank(s) {silent} in {GIVE_UP:g} s", now)
        if self._asked is None:
            return []
        self._send_at = now + self._repeat
        self._repeat = min(2 * self._repeat, REPEAT_MOST)
        return [(rank, self._asked) for rank in sorted(self._waiting)]

    def on_answer(self, rank: int, answer: StepAnswer, now: float) -> None:
        """A rank has answered a step; an answer to another step is ignored."""
        asked = self._asked
        if asked is None or (answer.version, answer.step) != (asked.version, asked.step):
            return
        if rank not in self._waiting:
            return
        if answer.why and asked.step in (PlanStep.OFFER, PlanStep.PROMISE):
            self._cancel(f"rank {rank}: {answer.why}", now)
            return
        for engine, stream, limit in answer.limits:
            known = self._promised.get((engine, stream), 0)
            self._promised[engine, stream] = max(known, limit)
        self._waiting.discard(rank)
        if not self._waiting:
            self._advance(asked, now)

    def on_gone(self, rank: int, now: float, *, leaving: bool = False) -> None:
        """A rank has left the job, or, if `leaving`, will do so after its operations."""
        self.ranks.discard(rank)
        self._waiting.discard(rank)
        if leaving:
            self.leaving.add(rank)
        else:
            self.leaving.discard(rank)
        if self._asked is None:
            self._start(now)
        elif self._asked.step in (PlanStep.OFFER, PlanStep.PROMISE):
            self._cancel(f"rank {rank} has left", now)
        elif not self._waiting:
            self._end(now)

    def last_word(self) -> StepAsk | None:
        """The message to all when rank 0 itself leaves: how the present offer ends."""
        asked = self._asked
        if asked is None or asked.step in (PlanStep.ADOPT, PlanStep.CANCEL):
            return asked
        return StepAsk(asked.version, PlanStep.CANCEL)

    def _start(self, now: float) -> None:
        if self._asked is not None or not self._next or self.leaving:
            return
        network, self._next = self._next, ()
        self.version += 1
        self._promised = {}
        made = job_network(network, self.version)
        self._until = now + GIVE_UP
        digest = b"" if made is None else made.digest
        self._enter(StepAsk(self.version, PlanStep.OFFER, network, digest), self.ranks, now)

    def _advance(self, asked: StepAsk, now: float) -> None:
        """All ranks have answered a step."""
        match asked.step:
            case PlanStep.OFFER:
                self._enter(StepAsk(asked.version, PlanStep.PROMISE), self.ranks, now)
            case PlanStep.PROMISE if len(self._promised) > MAX_BEGUN:
                self._cancel(f"the job has more than {MAX_BEGUN} groups", now)
            case PlanStep.PROMISE:
                firsts = [StreamRow(*key, last + 1) for key, last in self._promised.items()]
                order = StepAsk(asked.version, PlanStep.ADOPT, firsts=firsts, rest=REST)
                self._enter(order, self.ranks, now)
            case _:
                self._end(now)

    def _cancel(self, why: str, now: float) -> None:
        asked, self.news = self._asked, why
        if asked is not None and asked.step is PlanStep.PROMISE and self.ranks:
            self._enter(StepAsk(asked.version, PlanStep.CANCEL), self.ranks, now)
        else:  # no rank has promised anything
            self._end(now)

    def _end(self, now: float) -> None:
        self._asked = None
        self._start(now)

    def _enter(self, asked: StepAsk, ranks: Iterable[int], now: float) -> None:
        self._asked, self._waiting = asked, set(ranks)
        self._send_at, self._repeat = now, REPEAT_FIRST


class Offer(NamedTuple):
    """For the engines: OfferNetwork."""

    version: int
    network: Hosts


class Settle(NamedTuple):
    """For the engines: SettleNetwork. `network` is the new one; none: the old one stays."""

    version: int
    network: Hosts
    firsts: Sequence[StreamRow] = ()
    rest: int = 0


Output = StepAnswer | Offer | Settle


@dataclass(slots=True)
class Follower:
    """One rank of a job whose session has `engines` engines. `hosts`: names of the job's hosts."""

    hosts: Sequence[str]
    engines: int
    settled: int = FIRST_VERSION  # the newest version that is adopted or cancelled
    _offer: Offer | None = None
    _limits: dict[int, Sequence[StreamRow]] = field(default_factory=dict)  # by engine: promised
    _asked: bool = False  # the engines know the offer

    def on_ask(self, ask: StepAsk) -> list[Output]:
        """A step of rank 0; one that this rank cannot have been asked yet is ignored."""
        match ask.step:
            case PlanStep.OFFER:
                return self._on_offer(ask)
            case PlanStep.PROMISE:
                return self._on_promise(ask)
            case PlanStep.ADOPT | PlanStep.CANCEL:
                return self._on_end(ask)
            case _:
                return []

    def on_promised(self, engine: int, answer: StepAnswer) -> list[Output]:
        """An engine, by its number in the session, has answered the offer."""
        offer = self._offer
        if offer is None or not self._asked or answer.version != offer.version:
            return []
        if answer.why:
            return [answer]
        self._limits[engine] = answer.limits
        return self._promise(offer)

    def on_leader_gone(self) -> list[Output]:
        """Rank 0 has left: an open offer is void."""
        offer = self._offer
        return [] if offer is None else self._end(offer, Settle(offer.version, ()))

    def _on_offer(self, ask: StepAsk) -> list[Output]:
        if ask.version <= self.settled or self._asked:
            return []
        why = self._objection(ask)
        if not why:
            self._offer = Offer(ask.version, ask.network)
        return [StepAnswer(ask.version, ask.step, why=why[:MAX_WHY])]

    def _objection(self, ask: StepAsk) -> str:
        if [name for name, _ in ask.network] != list(self.hosts):
            return "its hosts are not those of the job"
        try:
            network = job_network(ask.network, ask.version)
        except BadNetwork as exc:
            return str(exc)
        if network is None or network.digest != ask.digest:
            return "its digest is another one: install the same dlcpd on all hosts"
        return ""

    def _on_promise(self, ask: StepAsk) -> list[Output]:
        offer = self._offer
        if offer is None or offer.version != ask.version:
            return []
        self._asked = True
        return self._promise(offer) or [offer]

    def _promise(self, offer: Offer) -> list[Output]:
        """The answer to rank 0, once all engines have promised."""
        if len(self._limits) < self.engines:
            return []
        rows = [row for rows in self._limits.values() for row in rows]
        if len(rows) > MAX_BEGUN:
            why = f"more than {MAX_BEGUN} groups have operations"
            return [StepAnswer(offer.version, PlanStep.PROMISE, why=why)]
        return [StepAnswer(offer.version, PlanStep.PROMISE, rows)]

    def _on_end(self, ask: StepAsk) -> list[Output]:
        done, offer = StepAnswer(ask.version, ask.step), self._offer
        if ask.version <= self.settled:
            return [done]
        if offer is None or offer.version != ask.version:
            if ask.step is PlanStep.CANCEL:
                self.settled = ask.version
                return [done]
            return []
        if ask.step is PlanStep.CANCEL:
            return [*self._end(offer, Settle(offer.version, ())), done]
        if len(self._limits) < self.engines:
            return []  # it has promised nothing, so rank 0 cannot have meant this
        settle = Settle(offer.version, offer.network, ask.firsts, ask.rest)
        return [*self._end(offer, settle), done]

    def _end(self, offer: Offer, settle: Settle) -> list[Output]:
        asked = self._asked
        self.settled, self._offer, self._asked, self._limits = offer.version, None, False, {}
        return [settle] if asked else []
