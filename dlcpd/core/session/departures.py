"""Peers leave the session: operations go on without them where possible, and fail elsewhere."""

from collections.abc import Iterable
from dataclasses import dataclass

from dlcpd.contract.errors import DlcpError
from dlcpd.core.session.failures import Failures
from dlcpd.core.session.mailbox import ANY
from dlcpd.core.session.operation import Operation
from dlcpd.core.session.state import SessionState
from dlcpd.core.session.stream_ids import EVERYBODY, messages


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Departures:
    """Decides for each operation whether it still needs a peer that has left."""

    state: SessionState
    failures: Failures

    def begun_with(self, rank: int) -> list[tuple[int, int]]:
        """By stream that `rank` may share: the newest operation such that all up to it began."""
        return [
            (wire, stream.begun)
            for (wire, peer), stream in self.state.streams.items()
            if stream.begun and peer in (EVERYBODY, rank)
        ]

    def peer_left(
        self,
        rank: int,
        begun: Iterable[tuple[int, int]],
        error: DlcpError,
        now: float,
        *,
        last: bool = True,
    ) -> None:
        """`rank` submits nothing after the operations that `begun` names, by stream; it still
        delivers its part of these. An operation that needs more of it fails. Without `last`, more
        streams will be named."""
        state = self.state
        state.departed.add(rank, begun, str(error), now, last=last)
        if not last:
            return
        for id_, operation in list(state.operations.items()):
            if rank in operation.peers and not state.departed.promised(rank, id_[0], id_[2]):
                self._let_go(rank, operation, state.departed.error(state.peer(rank), now), now)
        self.fail_hopeless_receivers(now)

    def peer_gone(self, rank: int, error: DlcpError, now: float) -> None:
        """The session of `rank` is over, as its daemon reports. Operations that still need it fail;
        the others go on.

        If the rank had not announced that it leaves, or no other peer is left, the session is
        broken.
        """
        state = self.state
        state.departed.end(rank)
        if rank in state.departed:
            error = state.departed.over_error(state.peer(rank))
        if state.outcomes.broken is None and not self._goes_on_without(rank):
            reason = error
            if rank in state.departed:  # and so are all others
                reason = state.departed.over_error(state.peer(state.departed.among(state.flows)[0]))
            state.outcomes.departs(rank, reason)
            self.failures.fail_receivers(reason)
        for operation in [op for op in state.operations.values() if rank in op.peers]:
            self._let_go(rank, operation, error, now)
        self.fail_hopeless_receivers(now)
        state.tell_departure()

    def release(self, rank: int, operation: Operation, now: float) -> None:
        """Nothing of an operation has to reach `rank` any more."""
        wire, _, number = operation.id
        self.state.repeater.acked(rank, operation.id)
        self.state.flows[rank].outgoing.acknowledge_all(wire, number, now, left=True)
        operation.on_left(rank, now)

    def ask_departed(self, operation: Operation, now: float) -> None:
        """An operation has begun here: peers that have left take part in it, or it fails."""
        wire, _, number = operation.id
        departed = self.state.departed
        for rank in departed.among(operation.peers):
            if operation.id not in self.state.operations:
                return
            if departed.is_over(rank) or not departed.promised(rank, wire, number):
                self._let_go(rank, operation, departed.error(self.state.peer(rank), now), now)

    def fail_hopeless_receivers(self, now: float) -> None:
        """Fail receivers to which no peer will send any more."""
        state = self.state
        if not state.departed:
            return
        for wanted in list(state.mailbox.receivers):
            ranks = list(state.flows) if wanted.rank == ANY else [wanted.rank]
            if all(self._sends_no_more(rank, wanted.group) for rank in ranks):
                error = state.departed.error(state.peer(ranks[0]), now)
                if state.outcomes.broken is None:
                    state.outcomes.departs(ranks[0], error)
                self.failures.fail_receiver(wanted.receiver, error)
                state.tell_departure()

    def _sends_no_more(self, rank: int, group: int) -> bool:
        """Whether all messages of a peer that has left were offered here."""
        departed, wire = self.state.departed, messages(group, rank, self.state.rank)
        stream = self.state.streams.get((wire, rank))
        return rank in departed and (
            departed.is_over(rank)
            or not departed.promised(rank, wire, 1 + (stream.offered if stream else 0))
        )

    def _goes_on_without(self, rank: int) -> bool:
        """Whether other peers are left, promised operations have yet to begin, or messages of the
        rank wait here for a receiver."""
        departed = self.state.departed
        if rank not in departed:
            return False
        remain = not all(map(departed.is_over, self.state.flows))
        begun = {wire: stream.begun for (wire, _), stream in self.state.streams.items()}
        waits = any(message.rank == rank for message in self.state.mailbox.messages)
        return remain or waits or departed.promise_more(begun)

    def _let_go(self, rank: int, operation: Operation, error: DlcpError, now: float) -> None:
        """An operation gets nothing more from `rank`: it goes on without it, or fails."""
        promised = self.state.departed.promised(rank, operation.id[0], operation.id[2])
        if operation.done:
            self.release(rank, operation, now)
        elif operation.needs(rank, submitted=promised):
            self._lose(rank, operation, error)
        else:
            operation.ready_ranks.add(rank)
            self.release(rank, operation, now)

    def _lose(self, rank: int, operation: Operation, error: DlcpError) -> None:
        """An operation needs a rank that has left: it fails, and no other can begin."""
        if self.state.outcomes.broken is None:
            self.state.outcomes.departs(rank, error)
        self.failures.fail(operation, error)
