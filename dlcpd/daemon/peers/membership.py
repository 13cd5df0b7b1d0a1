"""What one rank knows of its peers, until all of them confirmed. Pure: no socket, no clock.

A link is up when the peer's hello echoed our session: then each side has the other's
endpoints and token. When all are up, the engines here begin to serve the session, and hellos say
so; when those of all peers do, the join is done: nobody's first packet meets an engine that does
not know it. Hellos are repeated until then and carry everything, so loss, repetition and order do
not matter.
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
    PEER_VERSION,
    Abort,
    AbortedRow,
    Goodbye,
    Leaving,
    PeerHello,
)
from dlcpd.io.commands import SessionLeft, UdpAddress
from dlcpd.io.udp.encryption import CHOICES

MAX_NAMED: Final = 8  # ranks listed in one error; the number of the rest follows

# field of a hello -> where an operator makes it equal
AGREED: Final = {
    "world_size": "start every rank with the same world size",
    "chunk_bytes": "make [network] chunk_bytes equal on both hosts",
    "digest_every": "make [checks] digest_every equal on both hosts",
    "data_encryption": "make [network] data_encryption equal on both hosts",
    "checksum": "make [network] checksum equal on both hosts",
}
# As an operator writes what a hello says by number.
SETTINGS: Final = {"data_encryption": CHOICES, "checksum": ("off", "on")}


class LinkState(Enum):
    """How far the exchange with one peer has come."""

    SILENT = auto()  # nothing heard of its present session
    HEARD = auto()  # its hello came, without our session in it
    UP = auto()  # its hello echoed our session
    GONE = auto()  # it was up, and its session ended


class LinkInput(Enum):
    """What a peer's message means to its link."""

    HELLO = auto()
    CONFIRM = auto()  # a hello that echoes our session
    FORGET = auto()  # its session ended before it was up, or another one took its place
    LEAVE = auto()  # its session, which we were up with, ended


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
    endpoint: str  # of its control
    key: str  # its control's CURVE key: only messages under this key speak for the rank
    token_in: int  # it sends data with this
    secret_in: str = ""  # it keys its checksums, or its encryption, with this; hexadecimal
    known_as: str = ""  # the host that its key is authorised for; then its own word does not count
    state: LinkState = LinkState.SILENT
    session: int = 0  # its session; 0 = not known
    token_out: int = 0  # we send data with this
    secret_out: str = ""  # and key ours with this
    seed: int = 0  # its random number, as it tells everybody
    endpoints: list[UdpAddress] = field(default_factory=list)  # of its engines, one per path each
    engines: int = 1  # that it has
    serving: bool = False  # they serve its session
    leaving: bool = False  # its client left, and its session delivers what it promised
    end_reason: str = ""  # why its session ended, if it said so

    def step(self, event: LinkInput) -> None:
        """Apply `event`; forgetting also forgets what the hello said."""
        self.state = LINKS[self.state, event]
        if event is LinkInput.FORGET:
            self.session, self.token_out, self.endpoints, self.serving = 0, 0, [], False

    def absorb(self, hello: PeerHello) -> None:
        """Keep what a hello says about its sender."""
        self.session, self.token_out, self.seed = hello.session, hello.token, hello.seed
        self.secret_out = hello.secret
        self.host = self.known_as or hello.host
        self.endpoints, self.engines = hello.endpoints, hello.engines
        self.serving |= hello.serving  # an older hello may come later

    def endpoints_of(self, engine: int) -> list[UdpAddress]:
        """Those of one engine, by path."""
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
    endpoints: list[list[UdpAddress]]  # by engine of ours, one per path
    agreed: dict[str, int]  # value of each name in AGREED
    links: dict[int, Link]
    proof: str = field(default="", repr=False)  # that the ranks know the job's secret; "" = none
    serving: bool = False  # our engines serve the session
    seed: int = 0  # u64 that nobody outside can guess

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
            **self.agreed,
        )

    def goodbye_to(self, link: Link, code: str, text: str) -> Goodbye:
        """Tell `link` that this session ended."""
        return Goodbye(
            self.job, self.rank, link.rank, self.session, link.session, code, text[:MAX_REASON]
        )

    def leaving_to(self, link: Link, engine: int, text: str, left: SessionLeft) -> Leaving:
        """Tell `link` that our client left after these operations of an engine."""
        return Leaving(
            self.job,
            self.rank,
            link.rank,
            self.session,
            link.session,
            engine,
            text[:MAX_REASON],
            left.begun,
            left.last,
        )

    def aborts_to(self, link: Link, engine: int, aborted: list[AbortedRow]) -> Iterator[Abort]:
        """Tell `link` that this rank gave operations of an engine up."""
        for first in range(0, len(aborted), MAX_ABORTED):
            yield Abort(
                self.job,
                self.rank,
                link.rank,
                self.session,
                link.session,
                engine,
                aborted[first : first + MAX_ABORTED],
            )

    def joining_hello(self, link: Link, hello: PeerHello) -> None:
        """A hello while this rank is joining.

        Raises: RanksDisagree naming both ranks and values; NotAuthorised.
        """
        if hello.session < link.session:
            return  # sessions of one daemon count up: this one is over
        self._check_proof(link, hello)
        if link.session not in (0, hello.session):
            link.step(LinkInput.FORGET)  # the peer started again, and so do we with it
        link.absorb(hello)
        self._check_agreement(link, hello)
        link.step(LinkInput.CONFIRM if hello.echo == self.session else LinkInput.HELLO)

    def joining_goodbye(self, link: Link, goodbye: Goodbye) -> bool:
        """A goodbye while joining. True: it is about our join, which cannot succeed any more."""
        if goodbye.session != link.session:
            return False
        link.end_reason = goodbye.text
        link.step(LinkInput.FORGET)
        return goodbye.echo == self.session

    def concerns(self, link: Link, message: Goodbye | Abort | Leaving) -> bool:
        """Whether `message` is from the session that `link` is up with, and about ours."""
        return (
            link.state is LinkState.UP
            and message.session == link.session
            and message.echo == self.session
        )

    def rejoined(self, link: Link, hello: PeerHello) -> bool:
        """Whether a hello tells that the session `link` was up with has been replaced."""
        replaced = link.state is LinkState.UP and hello.session > link.session
        return replaced and not link.leaving  # else the session says Goodbye when it is over

    @property
    def digest_key(self) -> bytes:
        """What all ranks know, once they have met, and nobody else."""
        seed = self.links[0].seed if 0 in self.links else self.seed
        return seed.to_bytes(8, "little")

    @property
    def met(self) -> bool:
        """Whether every link is up: the engines can be told of the session."""
        return all(link.state is LinkState.UP for link in self.links.values())

    @property
    def complete(self) -> bool:
        """Whether the engines of every rank serve its session."""
        return self.serving and not self.waiting

    @property
    def engines_used(self) -> int:
        """As many as every rank has, so the same on all: engine k of one speaks to engine k of
        the others. Known once every link is up."""
        return min([len(self.endpoints), *(link.engines for link in self.links.values())])

    @property
    def waiting(self) -> list[Link]:
        """Links of which we have yet to hear something."""
        return [link for link in self.links.values() if not _ready(link)]

    def timed_out(self, timeout: float) -> PeerLost:
        """The error of a join that waited `timeout` seconds."""
        waiting = self.waiting
        named = "; ".join(_silence(link) for link in waiting[:MAX_NAMED])
        rest = f"; and {len(waiting) - MAX_NAMED} more" if len(waiting) > MAX_NAMED else ""
        return PeerLost(
            f"job {self.job!r}: after {timeout:g} s, {len(waiting)} of {len(self.links)} peers "
            f"of rank {self.rank} on {self.host} did not answer: {named}{rest}"
        )

    def other_version(self, link: Link, version: int) -> RanksDisagree:
        """The error when `link` speaks another version of the controls' protocol."""
        return RanksDisagree(
            f"ranks disagree on the control protocol: rank {self.rank} on {self.host} speaks "
            f"version {PEER_VERSION}, {link} speaks {version}; install the same dlcpd on both"
        )

    def _check_proof(self, link: Link, hello: PeerHello) -> None:
        """The peer's daemon is the right one; its client may be anybody who may use it."""
        if not hmac.compare_digest(hello.proof.encode(), self.proof.encode()):
            raise NotAuthorised(
                f"{link}: who joined there as rank {link.rank} of job {self.job!r} does not know "
                f"the secret that rank {self.rank} on {self.host} has: it is no rank of this job"
            )

    def _check_agreement(self, link: Link, hello: PeerHello) -> None:
        first = zip(self.endpoints[0], link.endpoints_of(0), strict=False)
        for path, (here, there) in enumerate(first):
            if (":" in here.host) != (":" in there.host):  # the engine would send to neither family
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
    return link.state is LinkState.UP and link.serving


def _silence(link: Link) -> str:
    if link.end_reason:
        return f"{link} ({link.endpoint}) left: {link.end_reason}"
    if link.state is LinkState.UP:
        return f"{link} ({link.endpoint}) waits for another rank, or its engine is busy"
    how = "answered once, then fell silent" if link.state is LinkState.HEARD else "never answered"
    return f"{link} ({link.endpoint}) {how}"
