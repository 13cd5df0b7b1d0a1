"""Events that a session reports to its owner. Values, drained after every wake-up."""

from enum import Enum
from typing import NamedTuple

from dlcpd.contract.errors import NOBODY, Peer
from dlcpd.core.paths.health import PathState


class Stats(NamedTuple):
    """Segments of one operation on this rank; fields as in contract.messages.Completed.

    `allowed`: how many of `sent` its bound lets peers waive.
    """

    sent: int = 0
    retransmitted: int = 0
    waived: int = 0
    reapplied: int = 0
    lost: int = 0
    energy: float = 0.0
    allowed: int = 0


class OperationDone(NamedTuple):
    """The result is in place. `released`: no peer needs the memory any more.

    `ticket` is the number that the client gave the operation, here and below.
    """

    session: int
    ticket: int
    released: bool
    stats: Stats
    source: int = -1  # rank in the group whose message was received; -1: no message


class OperationDue(NamedTuple):
    """A step of an operation is the client's to compute, over bytes [start, start + size): one of
    `steps`. 0: the client has none to compute."""

    session: int
    ticket: int
    step: int
    start: int
    size: int
    steps: int


class OperationReleased(NamedTuple):
    """The memory of a done operation is free."""

    session: int
    ticket: int


class OperationFailed(NamedTuple):
    """The operation ended without a result, here. `ranks` may wait for it in vain; to them it is
    operation `number` of `stream`. `peer`: the peer that caused it, if that is known."""

    session: int
    ticket: int
    code: str
    text: str
    stream: int = 0
    number: int = 0
    ranks: tuple[int, ...] = ()
    peer: Peer = NOBODY


class MessageWithdrawn(NamedTuple):
    """A message that is done here has not reached `ranks` by its deadline, and never will: to them
    it is `number` of `stream`."""

    session: int
    code: str
    text: str
    stream: int
    number: int
    ranks: tuple[int, ...]
    peer: Peer = NOBODY


class SessionBroken(NamedTuple):
    """`rank` is lost or has diverged; every open operation failed just before."""

    session: int
    rank: int
    code: str
    text: str
    peer: Peer = NOBODY


class PathNews(NamedTuple):
    """A path towards `rank` changed. Never an error: the other paths carry on."""

    session: int
    rank: int
    path: int
    state: PathState
    loss: float  # fraction of the packets of the last sample


class PeerState(Enum):
    """Changes in the silence of a peer."""

    SUSPECTED = "peer_suspected"  # it is silent; it may be paused, cut off or dead
    HEARD = "peer_heard"  # it was suspected, and is heard again
    AWAITED_NO_MORE = "peer_not_awaited"  # it was suspected, and no operation waits for it any more


class PeerNews(NamedTuple):
    """A peer fell silent or is heard again. Never an error: the operations go on."""

    session: int
    rank: int
    state: PeerState
    silent: float  # seconds


class Concluded(NamedTuple):
    """The session may end: peers have the same results, except for `unconfirmed` ones that some
    peers did not confirm in time."""

    session: int
    unconfirmed: int


Event = (
    OperationDone
    | OperationDue
    | OperationReleased
    | OperationFailed
    | MessageWithdrawn
    | SessionBroken
    | PathNews
    | PeerNews
    | Concluded
)
