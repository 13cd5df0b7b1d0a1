"""Commands: from the control process to an engine of the same host and user.

`dlcpd.io.control_frames` has their frames, `dlcpd.io.control_events` the engine's answers and news.
"""

from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Annotated, NamedTuple

from dlcpd.contract.forms import between
from dlcpd.contract.messages import MAX_OPERATION
from dlcpd.schedules.network import TYPICAL, Costs, HostCapacity

Stream = Annotated[int, between(0, (1 << 16) - 1)]  # number on the wire
Operation = Annotated[int, between(1, MAX_OPERATION)]
MAX_BEGUN = 1024  # rows of a PeerLeft or SessionLeft: 10 KB
MAX_ABORTS = 64  # rows of an AbortOperations: at most 131 KB with texts of MAX_ABORT_TEXT
MAX_ABORT_TEXT = 512  # characters
NO_PEER = -1  # in a ProbeFlows
PROBE_MESSAGES = 16  # of a round, each way


class UdpAddress(NamedTuple):
    """One end of a path."""

    host: str  # IPv4 or IPv6 address
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether datagrams to it stay on this host."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:  # its socket will say what is wrong
            return False


class Begun(NamedTuple):
    """An operation of a stream, and all before it."""

    stream: Stream
    operation: Operation


@dataclass(frozen=True, slots=True)
class EnginePeer:
    """A peer of a session, as the engine needs it."""

    rank: int
    host: str  # name used in errors
    token_in: int  # in datagrams from the peer
    token_out: int  # in datagrams to the peer
    endpoints: list[UdpAddress]  # one per path
    # keys checksums, or encryption, of the peer's datagrams; empty: they have no checksums
    secret_in: bytes = b""
    secret_out: bytes = b""  # the same for datagrams to the peer


@dataclass(frozen=True, slots=True)
class OpenSession:
    """Carries two descriptors: arena (memfd) and the engine's end of the lane.

    The engine is number `engine` of `engines` that serve the session.
    """

    session: int
    job: str
    rank: int
    world_size: int
    arena_bytes: int
    peers: list[EnginePeer]
    engine: int = 0
    engines: int = 1
    digest_key: bytes = b""  # of replica digests; the same on all ranks
    inherits: int = 0  # session whose residuals it takes over; 0 = none
    # the job's hosts in the order of their first rank, with what each told; none: nothing is known
    network: list[tuple[str, HostCapacity]] = field(default_factory=list)
    round_trip: int = 0  # microseconds, the longest between two of these hosts; 0 = not known
    costs: Costs = TYPICAL  # of the job's engines, the largest


@dataclass(frozen=True, slots=True)
class OfferNetwork:
    """Rank 0 offers a network for operations to come. Answered with NetworkPromised."""

    session: int
    version: int
    network: list[tuple[str, HostCapacity]]  # as in OpenSession


@dataclass(frozen=True, slots=True)
class SettleNetwork:
    """The offer is settled. Operations from these on, of each stream, have the new network; those
    of other streams from `rest` on. `rest` 0: the old network stays."""

    session: int
    version: int
    firsts: list[Begun]
    rest: int


@dataclass(frozen=True, slots=True)
class FindRoutes:
    """Find the routers on the paths of a session: its next reports have them."""

    session: int


@dataclass(frozen=True, slots=True)
class ProbeFlows:
    """A round of a probe: PROBE_MESSAGES messages to a peer and from another, at the same time.
    Answered with FlowsProbed."""

    session: int
    serial: int  # of the round
    target: int  # rank; NO_PEER: nothing is sent
    out_bytes: int  # of all messages to it, a multiple of PROBE_MESSAGES
    source: int  # rank; NO_PEER: nothing is received
    in_bytes: int  # likewise
    deadline: float  # seconds of the round, at most
    idle: bool  # it fails unless the job runs no operation meanwhile


@dataclass(frozen=True, slots=True)
class CloseSession:
    """The client left, or control ended the session. Open operations fail with `text`."""

    session: int
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class LeaveSession:
    """The client left. Operations without a result fail with `text`; the engine keeps the others
    for peers until they have them, or until DELIVERY seconds are over."""

    session: int
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class PeerLeft:
    """A peer's client left after the operations that `begun` names; it still delivers these. With
    `last` all of them are named. At most MAX_BEGUN."""

    session: int
    rank: int
    text: str
    begun: list[Begun]
    last: bool


@dataclass(frozen=True, slots=True)
class PeerGone:
    """Control learned that a peer's session ended."""

    session: int
    rank: int
    text: str


@dataclass(frozen=True, slots=True)
class PeerDoubted:
    """Control has a sign that a peer's process has ended; the engine then pings the peer."""

    session: int
    rank: int
    sign: str  # in words, and what it means


class AbortedOperation(NamedTuple):
    """A peer aborted an operation."""

    rank: int  # the peer
    stream: int  # on the wire
    operation: int
    text: str
    lost: int = -1  # the lost rank that caused it, or -1


@dataclass(frozen=True, slots=True)
class AbortOperations:
    """Peers aborted operations. At most MAX_ABORTS of them."""

    session: int
    aborted: list[AbortedOperation]


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """Ask for counters, paths, sessions and the newest `ledger` rows. Answered with Reports."""

    ledger: int


@dataclass(frozen=True, slots=True)
class AliveRequest:
    """Ask whether the engine answers. Answered with Alive, at the cost of two packets."""


@dataclass(frozen=True, slots=True)
class TraceOperations:
    """Record events of operations, or return them. Answered with TraceReport."""

    what: str  # of contract.inquiries.TRACE


@dataclass(frozen=True, slots=True)
class Stop:
    """End the engine at once; `drain` lets open operations finish first, seconds."""

    drain: float


Command = (
    OpenSession
    | OfferNetwork
    | SettleNetwork
    | FindRoutes
    | ProbeFlows
    | CloseSession
    | LeaveSession
    | PeerLeft
    | PeerGone
    | PeerDoubted
    | AbortOperations
    | ReportRequest
    | AliveRequest
    | TraceOperations
    | Stop
)
