"""Events: from an engine to the control process of its host."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from dlcpd.io.commands import Begun, UdpAddress

MAX_FAILURES = 16  # rows of an OperationsFailed: at most 131 KB, if each character has four bytes
MAX_FAILURE_TEXT = 2048  # characters


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


@dataclass(frozen=True, slots=True)
class NetworkPromised:
    """Until an offered network is settled, the engine begins no operation beyond these, and beyond
    the first WINDOW of other streams. `why`: it cannot take the offer; else empty."""

    session: int
    version: int
    limits: list[Begun]
    why: str = ""


@dataclass(frozen=True, slots=True)
class FlowsProbed:
    """A round of a probe is over."""

    session: int
    serial: int
    bps: int  # rate of the messages that arrived; 0: there were none, or `why`
    why: str = ""  # the round failed


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
class LeftOpen:
    """The client of a session ended before `operations` of its operations had results, or, if 0,
    between two operations and without a Leave."""

    session: int
    operations: int


@dataclass(frozen=True, slots=True)
class SessionFailed:
    """A peer is lost or replicas diverged: every open operation of the session failed."""

    session: int
    rank: int  # the peer
    code: str
    text: str
    failed: int = 0  # operations of the session that have failed here, over its life


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
    """Part of the answer to ReportRequest; `last`: no other follows."""

    report: dict[str, Any]
    last: bool = True


@dataclass(frozen=True, slots=True)
class Alive:
    """Answer to AliveRequest."""


@dataclass(frozen=True, slots=True)
class TraceReport:
    """Answer to TraceOperations; keys in docs/ipc.md."""

    report: dict[str, Any]


Event = (
    EngineReady
    | EngineFailed
    | SessionOpened
    | SessionEnded
    | SessionLeft
    | SessionDelivered
    | NetworkPromised
    | FlowsProbed
    | OperationsFailed
    | LeftOpen
    | SessionFailed
    | PathChanged
    | PeerChanged
    | PathMtuChanged
    | LedgerEnded
    | Report
    | Alive
    | TraceReport
)
