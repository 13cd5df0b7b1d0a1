"""The links of one rank to its peers, and their state while it joins. Pure: no socket, no clock.

A link is up when the peer's hello echoed the local session: then each side has the other's
endpoints and token. When all links are up, the local engines begin to serve the session, and hellos
say so. When the engines of all peers serve it, the join is done: no first packet meets an engine
that does not know the session. Hellos are repeated until then and carry everything, so loss,
repetition and order do not matter.
"""

import hmac
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from dlcpd.contract.errors import NotAuthorised, PeerLost, RanksDisagree
from dlcpd.daemon.peers.peer_messages import (
    MAX_ABORTED,
    MAX_REASON,
    OLDEST_PEER,
    PEER_VERSION,
    UNKNOWN,
    Abort,
    AbortedRow,
    Addressed,
    Goodbye,
    Leaving,
    PeerHello,
)
from dlcpd.daemon.peers.peers import is_loopback
from dlcpd.io.commands import UdpAddress
from dlcpd.io.control_events import SessionLeft
from dlcpd.io.udp.encryption import CHOICES
from dlcpd.schedules.network import TYPICAL, Costs, HostCapacity, agreed

MAX_NAMED: Final = 8  # ranks listed in one error; the number of the rest follows

# field of a hello -> how an operator makes it equal
AGREED: Final = {
    "world_size": "start every rank with the same world size",
    "chunk_bytes": "make [network] chunk_bytes equal on both hosts",
    "digest_every": "make [checks] digest_every equal on both hosts",
    "data_encryption": "make [network] data_encryption equal on both hosts",
    "checksum": "make [network] checksum equal on both hosts",
}
# Values as an operator writes them; a hello carries the index.
SETTINGS: Final = {"data_encryption": CHOICES, "checksum": ("off", "on")}


class LinkState(Enum):
    """State of the exchange of hellos with one peer."""

    SILENT = auto()  # nothing heard of its present session
    HEARD = auto()  # its hello came, without the local session in it
    UP = auto()  # its hello echoed the local session
    GONE = auto()  # it was up, and its session ended


class LinkInput(Enum):
    """Input of a link, from the peer's messages."""

    HELLO = auto()
    CONFIRM = auto()  # a hello that echoes the local session
    FORGET = auto()  # its session ended before it was up, or another one took its place
    LEAVE = auto()  # its session ended, after the link was up


LINKS: Final[dict[tuple[LinkState, LinkInput], LinkState]] = {
    (LinkState.SILENT, LinkInput.HELLO): LinkState.HEARD,
    (LinkState.SILENT, LinkInput.CONFIRM): LinkState.UP,
    (LinkState.SILENT, LinkInput.FORGET): LinkState.SILENT,
    (LinkState.HEARD, LinkInput.HELLO): LinkState.HEARD,
    (LinkState.HEARD, LinkInput.CONFIRM): LinkState.UP,
    (LinkState.HEARD, LinkInput.FORGET): LinkState.SILENT,
    (LinkState.UP, LinkInput.HELLO): LinkState.UP,  # an older hello, overtaken by its successor
    (LinkState.UP, LinkInput.CONFIRM): LinkState.UP,
    (LinkState.UP, LinkInput.FORGET): LinkState.SILENT,
    (LinkState.UP, LinkInput.LEAVE): LinkState.GONE,
}


@dataclass(slots=True)
class Link:
    """One peer rank."""

    rank: int
    host: str
    endpoint: str  # of its control process
    key: str  # CURVE key of its control process: only messages under this key speak for the rank
    token_in: int  # in the data that it sends
    secret_in: str = ""  # keys the checksums, or the encryption, of these data; hexadecimal
    known_as: str = ""  # the host that its key is authorised for; overrides its hello
    state: LinkState = LinkState.SILENT
    session: int = 0  # its session; 0 = not known
    token_out: int = 0  # in the data that it gets
    secret_out: str = ""  # keys the checksums, or the encryption, of these data
    seed: int = 0  # its random number, the same for all peers
    endpoints: list[UdpAddress] = field(default_factory=list)  # of its engines, one per path each
    engines: int = 1  # number of its engines
    capacity: HostCapacity | None = None  # of its host
    costs: Costs = TYPICAL  # of its engines
    round_trip: int = UNKNOWN  # microseconds, the longest to any of its peers
    serving: bool = False  # they serve its session
    leaving: bool = False  # its client left; its session still delivers operations that began
    end_reason: str = ""  # why its session ended, if it said so

    def step(self, event: LinkInput) -> None:
        """Apply `event`; FORGET also clears the values of the hello."""
        self.state = LINKS[self.state, event]
        if event is LinkInput.FORGET:
            self.session, self.token_out, self.endpoints, self.serving = 0, 0, [], False
            self.round_trip = UNKNOWN

    def absorb(self, hello: PeerHello) -> None:
        """Store the values of a hello."""
        self.session, self.token_out, self.seed = hello.session, hello.token, hello.seed
        self.secret_out = hello.secret
        self.host = self.known_as or hello.host
        self.endpoints, self.engines, self.costs = hello.endpoints, hello.engines, hello.costs
        self.capacity = hello.capacity[0] if hello.capacity else None
        self.serving |= hello.serving  # an older hello may come later
        self.round_trip = max(self.round_trip, hello.round_trip)  # likewise

    def endpoints_of(self, engine: int) -> list[UdpAddress]:
        """Endpoints of one engine, by path."""
        paths = len(self.endpoints) // self.engines
        return self.endpoints[engine * paths : (engine + 1) * paths]

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host}"


@dataclass(slots=True)
class Membership:
    """One local rank and its links."""

    job: str
    rank: int
    session: int
    host: str
    endpoints: list[list[UdpAddress]]  # by local engine, one per path
    agreed: dict[str, int]  # value of each name in AGREED
    links: dict[int, Link]
    proof: str = field(default="", repr=False)  # of the job's secret; "" = none
    serving: bool = False  # the local engines serve the session
    seed: int = 0  # random u64; only the job's ranks know it
    capacity: HostCapacity | None = None  # of this host
    costs: Costs = TYPICAL  # of the local engines
    round_trip: int = UNKNOWN  # microseconds, the longest to any peer, once every link is up

    def hello_to(self, link: Link) -> PeerHello:
        """The hello that tells `link` everything it needs."""
        return PeerHello(
            job=self.job,
            from_rank=self.rank,
            to_rank=link.rank,
            session=self.session,
            echo=link.session,
            answer=not _ready(link),
            serving=self.serving,
            host=self.host,
            proof=self.proof,
            token=link.token_in,
            secret=link.secret_in,
            seed=self.seed,
            endpoints=[end for engine in self.endpoints for end in engine],
            engines=len(self.endpoints),
            capacity=[] if self.capacity is None else [self.capacity],
            round_trip=self.round_trip,
            costs=self.costs,
            newest=PEER_VERSION if PEER_VERSION > OLDEST_PEER else 0,
            **self.agreed,
        )

    def names_to(self, link: Link) -> tuple[str, int, int, int, int]:
        """The first fields of each message for `link`: job, ranks and sessions."""
        return self.job, self.rank, link.rank, self.session, link.session

    def goodbye_to(self, link: Link, code: str, text: str) -> Goodbye:
        """The message for `link` that this session ended."""
        return Goodbye(*self.names_to(link), code, text[:MAX_REASON])

    def leaving_to(self, link: Link, engine: int, text: str, left: SessionLeft) -> Leaving:
        """The message for `link` that the client left after these operations of an engine."""
        return Leaving(*self.names_to(link), engine, text[:MAX_REASON], left.begun, left.last)

    def aborts_to(self, link: Link, engine: int, aborted: list[AbortedRow]) -> Iterator[Abort]:
        """The messages for `link` that this rank aborted operations of an engine."""
        for first in range(0, len(aborted), MAX_ABORTED):
            yield Abort(*self.names_to(link), engine, aborted[first : first + MAX_ABORTED])

    def joining_hello(self, link: Link, hello: PeerHello) -> None:
        """Handle a hello while this rank is joining.

        Raises: RanksDisagree naming both ranks and values; NotAuthorised.
        """
        if hello.session < link.session:
            return  # sessions of one daemon count up: this one is over
        self._check_proof(link, hello)
        if link.session not in (0, hello.session):
            link.step(LinkInput.FORGET)  # the peer started again: so does the link
        link.absorb(hello)
        self._check_agreement(link, hello)
        link.step(LinkInput.CONFIRM if hello.echo == self.session else LinkInput.HELLO)

    def joining_goodbye(self, link: Link, goodbye: Goodbye) -> bool:
        """Handle a goodbye while joining. True: it concerns this join, which must fail."""
        if goodbye.session != link.session:
            return False
        link.end_reason = goodbye.text
        link.step(LinkInput.FORGET)
        return goodbye.echo == self.session

    def concerns(self, link: Link, message: Addressed) -> bool:
        """Whether `message` is from the session that `link` is up with, to the local session."""
        ours = message.session == link.session and message.echo == self.session
        return link.state is LinkState.UP and ours

    def rejoined(self, link: Link, hello: PeerHello) -> bool:
        """Whether a hello tells that the session `link` was up with has been replaced."""
        replaced = link.state is LinkState.UP and hello.session > link.session
        return replaced and not link.leaving  # else the session says Goodbye when it is over

    @property
    def digest_key(self) -> bytes:
        """Key of digests, 8 bytes: rank 0's seed. Only the job's ranks know it, once they have
        met."""
        seed = self.links[0].seed if 0 in self.links else self.seed
        return seed.to_bytes(8, "little")

    @property
    def capacities(self) -> list[tuple[str, HostCapacity | None]]:
        """The capacity that each host told, hosts in the order of their first rank. Equal on all
        ranks, once every link is up."""
        told = {self.rank: (self.host, self.capacity)}
        told |= {rank: (link.host, link.capacity) for rank, link in self.links.items()}
        hosts = dict[str, HostCapacity | None]()
        for _, (host, capacity) in sorted(told.items()):
            hosts.setdefault(host, capacity)
        return list(hosts.items())

    @property
    def met(self) -> bool:
        """Whether every link is up: the round trips to all peers are known."""
        return all(link.state is LinkState.UP for link in self.links.values())

    @property
    def measured(self) -> bool:
        """Whether every link is up and every rank has told its longest round trip: the engines can
        be told of the session."""
        told = [self.round_trip, *(link.round_trip for link in self.links.values())]
        return self.met and UNKNOWN not in told

    @property
    def longest_round_trip(self) -> int:
        """Microseconds, the longest between two ranks. Equal on all ranks once it is measured."""
        return max([self.round_trip, *(link.round_trip for link in self.links.values())])

    @property
    def largest_costs(self) -> Costs:
        """Of the engines of all ranks. Equal on all ranks, once every link is up."""
        return agreed([self.costs, *(link.costs for link in self.links.values())])

    @property
    def complete(self) -> bool:
        """Whether the engines of every rank serve its session."""
        return self.serving and not self.waiting

    @property
    def engines_used(self) -> int:
        """The number of engines that every rank has: engine k of one rank speaks to engine k of the
        others. Known once every link is up."""
        return min([len(self.endpoints), *(link.engines for link in self.links.values())])

    @property
    def waiting(self) -> list[Link]:
        """Links that are not up, whose round trips are not known, or whose engines do not serve
        yet."""
        return [link for link in self.links.values() if not _ready(link)]

    def timed_out(self, timeout: float) -> PeerLost:
        """The error of a join that waited `timeout` seconds."""
        waiting = self.waiting
        named = "; ".join(_silence(link) for link in waiting[:MAX_NAMED])
        rest = f"; and {len(waiting) - MAX_NAMED} more" if len(waiting) > MAX_NAMED else ""
        return PeerLost(
            f"job {self.job!r}: after {timeout:g} s, {len(waiting)} of {len(self.links)} peers "
            f"of rank {self.rank} on {self.host} did not answer: {named}{rest}{self._alone()}"
        )

    def _alone(self) -> str:
        """Names the daemons on loopback among others, which no other host reaches."""
        hosts = {link.host for link in self.links.values() if is_loopback(link.endpoint)}
        elsewhere = {link.host for link in self.links.values()} - hosts
        if any(not end.is_loopback for ends in self.endpoints for end in ends):
            elsewhere.add(self.host)
        else:
            hosts.add(self.host)
        if not (elsewhere and hosts):
            return ""
        named = ", ".join(sorted(hosts)[:MAX_NAMED])
        return f". On loopback, where no other host reaches it, listens the daemon of {named}"

    def other_version(self, link: Link, version: int) -> RanksDisagree:
        """The error when `link` speaks another version of the control protocol."""
        return RanksDisagree(
            f"ranks disagree on the control protocol: rank {self.rank} on {self.host} speaks "
            f"version {PEER_VERSION}, {link} speaks {version}; install the same dlcpd on both"
        )

    def _check_proof(self, link: Link, hello: PeerHello) -> None:
        """The peer's daemon is authenticated; this checks its client. Raises: NotAuthorised."""
        if not hmac.compare_digest(hello.proof.encode(), self.proof.encode()):
            raise NotAuthorised(
                f"{link}: who joined there as rank {link.rank} of job {self.job!r} does not know "
                f"the secret that rank {self.rank} on {self.host} has: it is no rank of this job"
            )

    def _check_agreement(self, link: Link, hello: PeerHello) -> None:
        first = zip(self.endpoints[0], link.endpoints_of(0), strict=False)
        for path, (here, there) in enumerate(first):
            if (":" in here.host) != (":" in there.host):  # the engines could not exchange data
                raise RanksDisagree(
                    f"ranks disagree on path {path}: rank {self.rank} on {self.host} has "
                    f"{here.host}, {link} has {there.host}; use IPv4 or IPv6 on both hosts"
                )
        for name, remedy in AGREED.items():
            ours, theirs = self.agreed[name], getattr(hello, name)
            if ours != theirs:
                raise RanksDisagree(
                    f"ranks disagree on {name}: rank {self.rank} on {self.host} has "
                    f"{_setting(name, ours)}, {link} has {_setting(name, theirs)}; {remedy}"
                )


def _setting(name: str, value: int) -> str:
    return SETTINGS[name][value] if name in SETTINGS else str(value)


def _ready(link: Link) -> bool:
    return link.state is LinkState.UP and link.serving and link.round_trip != UNKNOWN


def _silence(link: Link) -> str:
    if link.end_reason:
        return f"{link} ({link.endpoint}) left: {link.end_reason}"
    if link.state is LinkState.UP:
        return f"{link} ({link.endpoint}) waits for another rank, or its engine is busy"
    how = "answered once, then fell silent" if link.state is LinkState.HEARD else "never answered"
    return f"{link} ({link.endpoint}) {how}"
