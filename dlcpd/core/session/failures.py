"""Ends operations without a result: one, those of a group, or all of the session."""

from dataclasses import dataclass

from dlcpd.contract.errors import DeadlineExceeded, DlcpError, RanksDisagree, made
from dlcpd.core.session.events import MessageWithdrawn
from dlcpd.core.session.operation import Operation
from dlcpd.core.session.state import SessionState
from dlcpd.core.session.stream_ids import MESSAGES, messages


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Failures:
    """Fails operations and receivers, and breaks the session."""

    state: SessionState

    def fail(self, operation: Operation, error: DlcpError) -> None:
        """End an open operation without a result. One that is done is released: a peer that lacks
        parts of it reports a failure of its own."""
        state = self.state
        wire, peer, number = operation.id
        for rank in operation.peers:
            state.flows[rank].forget(wire, number)
        if operation.done:
            if not operation.released:
                state.outcomes.released(operation)
            state.close(operation)
            state.tell_departure()
            return
        error = _awaited(error, operation)
        state.close(operation)
        state.streams[wire, peer].fail(number)
        if state.trace.on:
            state.trace.note("failed", state.number, operation.id, error.code)
        # Ranks may disagree on the members of the group: then all ranks of the session are told,
        # since some that this rank does not expect may wait for it.
        apart = isinstance(error, RanksDisagree) and not wire & MESSAGES
        state.outcomes.failed(operation, error, state.flows if apart else operation.peers)
        state.tell_departure()

    def fail_receiver(self, operation: Operation, error: DlcpError) -> None:
        """Fail a receiver that met no message."""
        self.state.mailbox.cancel(operation)
        self.state.drop(operation)
        self.state.outcomes.refused(operation.ticket, _awaited(error, operation))

    def fail_receivers(self, error: DlcpError) -> None:
        """Fail all receivers that met no message."""
        for wanted in list(self.state.mailbox.receivers):
            self.fail_receiver(wanted.receiver, error)

    def fail_group(self, group: int, error: DlcpError) -> None:
        """Fail the open operations of one group; other groups go on. Operations of this group that
        are done here go on too, since peers may still need parts of them."""
        state = self.state
        members = [op for id_, op in state.operations.items() if id_[0] & ~MESSAGES == group]
        for operation in [op for op in members if not op.done]:
            self.fail(operation, error)
        for wanted in [w for w in state.mailbox.receivers if w.group == group]:
            self.fail_receiver(wanted.receiver, error)

    def fail_open(self, error: DlcpError) -> None:
        """Fail all operations without a result here. Done ones go on, since peers may need
        parts."""
        for operation in [op for op in self.state.operations.values() if not op.done]:
            self.fail(operation, error)
        self.fail_receivers(error)

    def fail_all(self, rank: int, error: DlcpError) -> None:
        """Break the session: every operation without a result fails, none can be submitted.

        After a departure, operations that went on without the peer that left end here too, unless
        the error is that peer's silence. Results that are in place here are still delivered to the
        other peers.
        """
        outcomes, departed = self.state.outcomes, self.state.departed
        if outcomes.departed(rank) or departed.is_over(rank):
            return
        departed.silent.add(rank)
        first = outcomes.breaks(error)
        self.fail_open(error)
        if first:
            outcomes.tell_broken(rank, error)

    def end(self, error: DlcpError) -> None:
        """The session closes: nothing more is delivered to any peer."""
        self.fail_all(self.state.rank, error)
        for operation in list(self.state.operations.values()):
            self.fail(operation, error)

    def on_deadline(self, operation: Operation) -> None:
        """The deadline of an operation, or of a receiver, has passed."""
        error = DeadlineExceeded(
            f"{operation.label} missed its deadline; waiting for {operation.awaited()[1]}. "
            f"Where ranks may be that far apart, allow more by deadline= of the policy"
        )
        if any(wanted.receiver is operation for wanted in self.state.mailbox.receivers):
            self.fail_receiver(operation, error)
        else:
            if operation.done:
                self._withdraw(operation, error)
            self.fail(operation, error)

    def _withdraw(self, operation: Operation, error: DlcpError) -> None:
        """Have the receiver of a message that is done, and did not reach it, give its number free:
        else it would not take the messages behind it."""
        wire, peer, number = operation.id
        if wire == messages(wire & ~MESSAGES, self.state.rank, peer):
            event = MessageWithdrawn(
                self.state.number, error.code, str(error), wire, number, (peer,)
            )
            self.state.outcomes.events.append(event)


def _awaited(error: DlcpError, operation: Operation) -> DlcpError:
    """`error` with the data that the operation waits for, if it is about a peer and names none."""
    if error.peer.rank < 0 or error.peer.awaiting:
        return error
    return made(type(error), str(error), error.peer._replace(awaiting=operation.awaited()[1]))
