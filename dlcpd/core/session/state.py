"""The state of one session: its flows, its open operations, and the streams that number them."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dlcpd.contract.errors import NOBODY, Peer
from dlcpd.core.session.departed_peers import DepartedPeers
from dlcpd.core.session.flow import Flow
from dlcpd.core.session.mailbox import Mailbox
from dlcpd.core.session.operation import Operation
from dlcpd.core.session.outcomes import Outcomes
from dlcpd.core.session.ready_repeat import ReadyRepeater
from dlcpd.core.session.stream import Stream, Streams
from dlcpd.core.session.stream_ids import OperationId
from dlcpd.core.timers import Timer, TimerTable
from dlcpd.core.trace import Trace

if TYPE_CHECKING:
    from dlcpd.core.session.session import Session


@dataclass(slots=True, eq=False, repr=False)
class SessionState:
    """The tables that the parts of a session share. `owner`: the session; timers expire there, and
    operations start with it."""

    owner: "Session"
    number: int  # of the session
    rank: int
    timers: TimerTable
    trace: Trace
    outcomes: Outcomes
    flows: dict[int, Flow] = field(default_factory=dict)  # by rank of the peer
    operations: dict[OperationId, Operation] = field(default_factory=dict)  # those that are open
    streams: Streams = field(default_factory=Streams)
    mailbox: Mailbox[Operation] = field(default_factory=Mailbox)
    departed: DepartedPeers = field(default_factory=DepartedPeers)
    repeater: ReadyRepeater = field(init=False)

    def __post_init__(self) -> None:
        self.repeater = ReadyRepeater(self.owner, self.timers)

    def peer(self, rank: int) -> Peer:
        """A rank as errors name it; an empty `Peer` if it is none of the peers."""
        flow = self.flows.get(rank)
        return Peer(rank, flow.host, flow.address) if flow else NOBODY

    def open(self, operation: Operation, stream: Stream, number: int) -> OperationId:
        """An operation begins, as `number` of its stream."""
        stream.begin(number)
        operation.id = id_ = (stream.wire, stream.peer, number)
        self.operations[id_] = operation
        self.set_deadline(operation)
        return id_

    def set_deadline(self, operation: Operation) -> None:
        """Set the timer for the deadline of an operation."""
        self.timers.set((self.owner, Timer.DEADLINE, operation), operation.deadline)

    def close(self, operation: Operation) -> None:
        """An operation has ended: drop its state, here and in the flows."""
        self.operations.pop(operation.id, None)
        self.drop(operation)
        wire, _, number = operation.id
        for rank in operation.peers:
            self.repeater.acked(rank, operation.id)
            self.flows[rank].arrivals.expect_nothing(wire, number)

    def drop(self, operation: Operation) -> None:
        """Drop the state of an operation that has no number, or none any more."""
        operation.closed()
        self.timers.cancel((self.owner, Timer.DEADLINE, operation))

    def on_ready_acked(self, rank: int, id_: OperationId) -> bool:
        """`rank` has this rank's READY of an operation. Returns whether that is news."""
        news = self.repeater.acked(rank, id_)
        if (operation := self.operations.get(id_)) is not None:
            operation.on_known(rank)
        return news

    def on_result(self, rank: int, id_: OperationId) -> None:
        """`rank` has the result of an operation, and so this rank's READY. Only a rank that needs
        no data of this rank may be done without it: the root of a broadcast still waits for READY
        before it sends."""
        if not self.repeater.is_sender_only(rank, id_):
            self.on_ready_acked(rank, id_)

    def tell_departure(self) -> None:
        """Report a peer that has left, once no operation is open that could still succeed."""
        if not self.operations:
            self.outcomes.tell_departure()
