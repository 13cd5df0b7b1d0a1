"""The engine's command and completion queues: control <-> engine, same host, same user.

One SOCK_SEQPACKET socketpair; a frame is the msgpack of `[kind, fields]`. Both ends
are this package at one version, so frames are trusted: no bounds here, unlike
dlcpd.contract.messages.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import msgpack

MAX_COMMAND = 192 * 1024  # bytes; SEQPACKET frames stay under the default socket buffer
MAX_FAILURES = 16  # rows of an OperationsFailed: at most 131 KB, if each character has four bytes
MAX_FAILURE_TEXT = 2048  # characters
MAX_BEGUN = 1024  # rows of a PeerLeft or SessionLeft: 10 KB
MAX_ABORTS = 64  # rows of an AbortOperations: at most 131 KB with texts of MAX_ABORT_TEXT
MAX_ABORT_TEXT = 512  # characters


class UdpAddress(NamedTuple):
    """One end of a path."""

    host: str  # IPv4 or IPv6 address
    port: int


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


class Begun(NamedTuple):
    """A rank began all operations of a stream up to this one."""

    stream: int  # on the wire
    operation: int


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
    sign: str  # in words


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
    """Ask for counters, paths, sessions and the newest `ledger` rows."""

    ledger: int


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """Record events of operations, or return them. Answered with Traced."""

    what: str  # of contract.messages.TRACE


@dataclass(frozen=True, slots=True)
class Stop:
    """End the engine at once; `drain` lets open operations finish first, seconds."""

    drain: float


@dataclass(frozen=True, slots=True)
class EngineReady:
    """First frame from the engine: the bound endpoint of each path."""

    endpoints: list[UdpAddress]
    features: dict[str, Any]  # data_path, gso, gro, receive_buffer


@dataclass(frozen=True, slots=True)
class EngineFailed:
    """The engine could not start; it exits after this frame."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """The engine serves a session from now on: it answers its peers."""

    session: int


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The engine closed a session: its client is gone or does not read, there was no room for it,
    or - `code` is "internal" - a bug; other sessions go on."""

    session: int
    code: str
    text: str
    trace: str = ""  # of the bug, for the log


@dataclass(frozen=True, slots=True)
class SessionLeft:
    """The client of a session left after these operations, of those that one peer may share. At
    most MAX_BEGUN; with `last` all of them are named."""

    session: int
    rank: int  # the peer
    begun: list[Begun]
    last: bool


@dataclass(frozen=True, slots=True)
class SessionDelivered:
    """After its client left: peers have all that the session owed them, or DELIVERY seconds are
    over and `lacking` says what they lack."""

    session: int
    lacking: str = ""


class FailedOperation(NamedTuple):
    """An operation whose failure the daemons of `ranks` must learn, so that no rank waits for
    it."""

    stream: int  # on the wire
    operation: int
    ranks: list[int]
    code: str
    text: str
    peer: int = -1  # rank that caused it


@dataclass(frozen=True, slots=True)
class OperationsFailed:
    """Some operations failed here. At most MAX_FAILURES of them."""

    session: int
    failures: list[FailedOperation]


@dataclass(frozen=True, slots=True)
class SessionBroken:
    """A peer is lost or replicas diverged: every open operation of the session failed."""

    session: int
    rank: int  # the peer
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class PathChanged:
    """A path towards a peer went down or up, or its loss became or ceased to be alarming."""

    session: int
    rank: int  # the peer
    path: int
    state: str  # a value of dlcpd.core.paths.health.PathState
    loss: float  # fraction, of the last sample


@dataclass(frozen=True, slots=True)
class PeerChanged:
    """A peer fell silent, or its silence is over."""

    session: int
    rank: int  # the peer
    state: str  # a value of dlcpd.core.session.events.PeerState
    silent: float  # seconds


@dataclass(frozen=True, slots=True)
class PathMtuChanged:
    """The MTU of a path towards a peer was found, or has changed."""

    session: int
    rank: int  # the peer
    path: int
    mtu: int  # bytes of the largest packet that passes; 0: not even 1,280 do
    before: int  # the MTU before; 0 = it was not known


@dataclass(frozen=True, slots=True)
class LedgerEnded:
    """A session's ledger cannot be written any more; the session goes on."""

    session: int
    text: str


@dataclass(frozen=True, slots=True)
class Report:
    """Answer to ReportRequest."""

    report: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Traced:
    """Answer to TraceRequest; keys in docs/ipc.md."""

    report: dict[str, Any]


Command = (
    OpenSession
    | CloseSession
    | LeaveSession
    | PeerLeft
    | PeerGone
    | PeerDoubted
    | AbortOperations
    | ReportRequest
    | TraceRequest
    | Stop
)
Event = (
    EngineReady
    | EngineFailed
    | SessionOpened
    | SessionEnded
    | SessionLeft
    | SessionDelivered
    | OperationsFailed
    | SessionBroken
    | PathChanged
    | PeerChanged
    | PathMtuChanged
    | LedgerEnded
    | Report
    | Traced
)

_KINDS: dict[str, type[Command | Event]] = {
    kind.__name__: kind
    for kind in (
        OpenSession,
        CloseSession,
        LeaveSession,
        PeerLeft,
        PeerGone,
        PeerDoubted,
        AbortOperations,
        ReportRequest,
        TraceRequest,
        Stop,
        EngineReady,
        EngineFailed,
        SessionOpened,
        SessionEnded,
        SessionLeft,
        SessionDelivered,
        OperationsFailed,
        SessionBroken,
        PathChanged,
        PeerChanged,
        PathMtuChanged,
        LedgerEnded,
        Report,
        Traced,
    )
}


def pack(message: Command | Event) -> bytes:
    """One frame."""
    packed: bytes = msgpack.packb([type(message).__name__, asdict(message)])
    return packed


def unpack(frame: bytes) -> Command | Event:
    """Inverse of `pack`."""
    name, values = msgpack.unpackb(frame)
    for field, make in _ROWS.get(name, {}).items():
        values[field] = [make(row) for row in values[field]]
    return _KINDS[name](**values)


def _peer(values: dict[str, Any]) -> EnginePeer:
    ends = [UdpAddress(*pair) for pair in values.pop("endpoints")]
    return EnginePeer(endpoints=ends, **values)


# field -> function that makes one of its rows, for messages that have rows
_ROWS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "OpenSession": {"peers": _peer},
    "EngineReady": {"endpoints": UdpAddress._make},
    "AbortOperations": {"aborted": AbortedOperation._make},
    "PeerLeft": {"begun": Begun._make},
    "SessionLeft": {"begun": Begun._make},
    "OperationsFailed": {"failures": FailedOperation._make},
}
