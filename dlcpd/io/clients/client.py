"""One client of the engine: carries out the messages of its lane."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Final

from dlcpd.collectives.execution import Execution
from dlcpd.collectives.order import Group
from dlcpd.collectives.scratch import ScratchPool
from dlcpd.contract.collectives import COLLECTIVES, WHOLE, Shape, Share
from dlcpd.contract.errors import BadMessage, DeadlineExceeded, DlcpError, SessionClosed, made
from dlcpd.contract.messages import CloseGroup, Computed, Leave, OpenGroup, Submit
from dlcpd.core.session.mailbox import ANY
from dlcpd.core.session.session import Session
from dlcpd.io.clients.lane import Lane
from dlcpd.io.config import EngineConfig
from dlcpd.ledger.recorder import Recorder
from dlcpd.requests.group import GroupRequests, deadline_of
from dlcpd.requests.memory import Claims, ranges_of
from dlcpd.requests.networks import Networks
from dlcpd.requests.plan import Plans

# Ranks of all groups that a session opens over its life, closed ones too: each takes some 300 B, so
# 40 MB. 512 groups of 256 ranks, or 8,192 of 16
MAX_MEMBERS: Final = 1 << 17
AT_ONCE: Final = 4 << 20  # bytes of an operation that are prepared before other clients' turn


@dataclass(frozen=True, slots=True)
class Pending:
    """An operation that needs work before it can begin."""

    ask: Submit
    made: Execution
    work: Iterator[int]  # yields the bytes of each piece


@dataclass(frozen=True, slots=True)
class Held:
    """An operation that may not begin before an offered network is settled."""

    ask: Submit
    group: GroupRequests
    until: float  # its deadline


@dataclass(slots=True, eq=False)
class Client:
    """A lane, its session and the groups that it opened."""

    lane: Lane
    session: Session
    config: EngineConfig
    scratch: ScratchPool  # of the engine
    share: Share = WHOLE  # of the tensors that the engines of this host divide
    recorder: Recorder | None = None  # of the session's ledger, if it has one
    networks: Networks = field(default_factory=Networks)  # of the session's hosts
    round_trip: int = 0  # microseconds, the longest between two of these hosts
    groups: dict[int, GroupRequests] = field(default_factory=dict)
    plans: Plans = field(default_factory=Plans)  # of all groups
    members: int = 0  # of all groups that were opened
    submitted: int = 0  # tickets count up
    # The last submission, not begun: the lane is not read meanwhile.
    pending: Pending | None = None
    held: Held | None = None
    inherits: int = 0  # session whose residuals it took over
    said_leave: bool = False  # it is about to end its session
    left: bool = False  # it sends and receives nothing any more; peers may still need its memory
    claims: Claims = field(init=False)

    def __post_init__(self) -> None:
        # not a method of this object: the cycle would keep the arena until a garbage collection
        self.claims = Claims(partial(_is_open, self.session))
        everybody = tuple(range(self.session.world_size))
        self._add_group(Group(0, everybody, self.session.rank))

    def _add_group(self, group: Group) -> None:
        made = GroupRequests(
            self.config.rules,
            self.scratch,
            self.session,
            group,
            self.share,
            self.plans,
            self.recorder,
            self.networks,
            self.round_trip,
        )
        self.groups[group.number] = made

    def handle(self, message: Any, now: float) -> DlcpError | None:
        """Carry out a message of the client. Returns why a submission failed, if the session does
        not report that. Raises: BadMessage."""
        match message:
            case Submit():
                return self._submit(message, now)
            case Computed():
                self._computed(message, now)
            case OpenGroup():
                self._open_group(message)
            case CloseGroup():
                self._close_group(message)
            case Leave():
                self.said_leave = True
                self.session.conclude(now, now + message.timeout)
            case _:
                raise BadMessage(f"{type(message).__name__} does not belong on a lane")
        return None

    def inherit(self, former: "Client") -> None:
        """Take over the residuals of an earlier session of the same rank. They fit an engine with
        the same share of large tensors only; otherwise they end with that session."""
        if former.share == self.share:
            self.inherits = former.session.number
            self.lane.accounts.residuals.take_over(former.lane.accounts.residuals)
            if self.recorder is not None:
                self.recorder.inherited()

    def give_back(self, former: "Client") -> None:
        """This session ends while the earlier one is still there: not all ranks joined. Return the
        residuals to it, for another attempt."""
        former.lane.accounts.residuals.take_over(self.lane.accounts.residuals)

    @property
    def unexpected_end(self) -> bool:
        """Whether a client that is gone now did not leave in good order: it was killed, or crashed.
        One without peers, or of a session that is over, has nothing to say before it ends. Of
        several engines of a session, the first one says so."""
        session = self.session
        over = self.said_leave or session.outcomes.broken is not None
        return bool(session.flows) and not over and self.share.number == 0

    def leave(self, error: DlcpError) -> None:
        """The client is gone. Open operations fail; complete ones stay for the peers."""
        self.left = True
        self.lane.hang_up()
        if (pending := self.pending) is not None:
            self.pending = None
            pending.made.closed()
            self._refuse(pending.ask, pending.made.order.group, error)
        if (held := self.held) is not None:
            self.held = None
            self._refuse(held.ask, held.group.group, error)
        self.session.leave(error)

    def close(self) -> None:
        """The session is over."""
        self.lane.close()
        if self.recorder is not None:
            self.recorder.close()

    def _submit(self, ask: Submit, now: float) -> DlcpError | None:
        gap = ask.operation - self.submitted - 1
        if gap < 0 or (gap and self.share.of == 1):  # other engines have the ones in between
            return BadMessage(f"operation {ask.operation} after {self.submitted}")
        self.submitted = ask.operation
        if (reason := self.session.outcomes.reason) is not None:
            return _awaited(reason, ask)
        group = self.groups.get(ask.group)
        if group is None:
            return BadMessage(f"operation {ask.operation}: group {ask.group} is not open")
        if group.waits(ask):
            self.held = Held(ask, group, deadline_of(ask, now))
            return None
        return self._make(ask, group, now)

    def release(self, now: float) -> DlcpError | None:
        """The offered network is settled, or the deadline of the `held` operation is over: it
        begins, or fails. Returns as `handle`."""
        held, self.held = self.held, None
        if held is None:
            return None
        if now >= held.until:
            what = f"operation {held.ask.operation} ({held.ask.collective})"
            late = f"{what} missed its deadline while this host waited for a new plan of rank 0"
            return self._refuse(held.ask, held.group.group, DeadlineExceeded(late))
        return self._make(held.ask, held.group, now)

    def _make(self, ask: Submit, group: GroupRequests, now: float) -> DlcpError | None:
        ranges = ranges_of(ask)
        try:
            made = group.make(ask, self.lane.memory, self.lane.accounts, now)
            self.claims.claim(made, ranges)  # before its residuals are added
        except DlcpError as exc:
            return self._refuse(ask, group.group, exc)
        made.buffers.hold(made.charge)
        work = made.prepare(self.session)
        committed = self.lane.committed
        if not committed.knows(ranges):
            work = chain(committed.look(ranges, ask.operation), work)
        self.pending = Pending(ask, made, work)
        return self.go_on(now, AT_ONCE)

    def go_on(self, now: float, size: int) -> DlcpError | None:
        """Prepare about `size` bytes more of the operation that is `pending`; begin it when no work
        is left. Returns as `handle`."""
        pending = self.pending
        if pending is None:
            return None
        try:
            for done in pending.work:
                size -= done
                if now >= pending.made.deadline:
                    break
                if size <= 0:
                    return None
            self._begin(pending, now)
        except DlcpError as exc:
            pending.made.closed()
            self.pending = None
            return self._refuse(pending.ask, pending.made.order.group, exc)
        self.pending = None
        return None

    def _refuse(self, ask: Submit, group: Group, error: DlcpError) -> DlcpError | None:
        if self.session.broken is not None or COLLECTIVES[ask.collective].message:
            return error
        self.session.refuse(ask.operation, ask.group, group.members, error)  # tells the peers too
        return None

    def _begin(self, pending: Pending, now: float) -> None:
        session, ask, made = self.session, pending.ask, pending.made
        group = made.order.group
        if now >= made.deadline:
            raise DeadlineExceeded(f"{made.label} missed its deadline before it could begin here")
        peer = ANY if ask.peer < 0 else group.members[ask.peer]
        match COLLECTIVES[ask.collective].shape:
            case Shape.SENT:
                session.submit_send(made, group.number, peer, now)
            case Shape.RECEIVED:
                session.submit_receive(made, group.number, peer, ask.tag, now)
            case _:
                session.submit(made, group.number, now)
        if session.trace.on:
            self._note(ask, made)

    def _note(self, ask: Submit, made: Execution) -> None:
        """Record that an operation has begun. A receive that waits for its message has no number
        yet."""
        name = ask.name or f"{ask.collective} {ask.dtype}[{ask.input_count}]"
        size = len(made.memory[0])
        self.session.trace.submitted(
            self.session.number,
            made.id,
            name,
            ask.operation,
            ask.collective,
            size,
            int(ask.submitted * 1e6),
            int(ask.max_loss * 1e6),
        )

    def _computed(self, answer: Computed, now: float) -> None:
        """Go on with an operation. The client may answer after it has failed."""
        for operation in self.session.operations.values():
            if operation.ticket == answer.operation:
                if operation.on_computed(answer.step, now, answer.error):
                    return
                break
        self.session.count("computed_not_due")

    def _open_group(self, ask: OpenGroup) -> None:
        members = tuple(ask.ranks)
        known = set(range(self.session.world_size))
        if ask.group in self.groups:
            raise BadMessage(f"group {ask.group} is open already")
        if len(set(members)) != len(members) or not set(members) <= known:
            raise BadMessage(f"group {ask.group}: ranks are different, and of this session")
        if self.session.rank not in members:
            raise BadMessage(f"group {ask.group}: rank {self.session.rank} is not a member")
        if self.members + len(members) > MAX_MEMBERS:
            raise BadMessage(
                f"group {ask.group}: a session may open groups of {MAX_MEMBERS} ranks in all, and "
                f"has opened some of {self.members}"
            )
        self.members += len(members)
        rank = members.index(self.session.rank)
        self._add_group(Group(ask.group, members, rank, ask.name or str(ask.group)))

    def _close_group(self, ask: CloseGroup) -> None:
        if self.groups.pop(ask.group, None) is None:
            raise BadMessage(f"group {ask.group} is not open")
        name = f"group {ask.group} was closed with operations open"
        self.session.fail_group(ask.group, SessionClosed(name))


def _is_open(session: Session, operation: Execution) -> bool:
    """Whether an operation uses its memory: it has neither a result nor failed."""
    if operation.done:
        return False
    if session.operations.get(operation.id) is operation:
        return True
    return any(wanted.receiver is operation for wanted in session.mailbox.receivers)


def _awaited(reason: DlcpError, ask: Submit) -> DlcpError:
    """The error that ended the session, with what the operation awaits if it is about a peer."""
    if reason.peer.rank < 0:
        return reason
    awaiting = f"rank(s) {reason.peer.rank} to submit operation {ask.operation} ({ask.collective})"
    return made(type(reason), str(reason), reason.peer._replace(awaiting=awaiting))
