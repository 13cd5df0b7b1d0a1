"""One client of the engine: what it says on its lane, and what it hears."""

from dataclasses import dataclass, field
from typing import Any

from dlcpd.collectives.order import Group
from dlcpd.collectives.scratch import ScratchPool
from dlcpd.contract.errors import BadMessage, DlcpError, SessionClosed, error_for
from dlcpd.contract.messages import CloseGroup, Leave, OpenGroup, Submit
from dlcpd.core.session.mailbox import ANY
from dlcpd.core.session.session import Session
from dlcpd.io.clients.lane import Lane
from dlcpd.io.clients.submission import Submissions
from dlcpd.io.config import EngineConfig
from dlcpd.schedules.divide import WHOLE, Share


@dataclass(slots=True, eq=False)
class Client:
    """A lane, its session and the groups that it opened."""

    lane: Lane
    session: Session
    config: EngineConfig
    scratch: ScratchPool  # of the engine
    share: Share = WHOLE  # of what is divided among the engines of this host
    groups: dict[int, Submissions] = field(default_factory=dict)
    submitted: int = 0  # tickets count up

    def __post_init__(self) -> None:
        everybody = tuple(range(self.session.world_size))
        self._add_group(Group(0, everybody, self.session.rank))

    def _add_group(self, group: Group) -> None:
        made = Submissions(self.config, self.scratch, self.session, group, self.share)
        self.groups[group.number] = made

    def handle(self, message: Any, now: float) -> DlcpError | None:
        """Do what the client says. Returns why the submission failed that was said, where
        the session knows nothing of it. Raises: BadMessage."""
        match message:
            case Submit():
                return self._submit(message, now)
            case OpenGroup():
                self._open_group(message)
            case CloseGroup():
                self._close_group(message)
            case Leave():
                self.session.conclude(now, now + message.timeout)
            case _:
                raise BadMessage(f"{type(message).__name__} does not belong on a lane")
        return None

    def _submit(self, ask: Submit, now: float) -> DlcpError | None:
        gap = ask.operation - self.submitted - 1
        if gap < 0 or (gap and self.share.of == 1):  # other engines have those in between
            return BadMessage(f"operation {ask.operation} after {self.submitted}")
        self.submitted = ask.operation
        if self.session.broken is not None:
            return error_for(*self.session.broken)
        group = self.groups.get(ask.group)
        if group is None:
            return BadMessage(f"operation {ask.operation}: group {ask.group} is not open")
        try:
            self._begin(ask, group, now)
        except DlcpError as exc:
            if ask.collective in ("send", "receive"):
                return exc
            members = group.group.members
            self.session.refuse(ask.operation, ask.group, members, exc)  # tells client and peers
        return None

    def _begin(self, ask: Submit, submissions: Submissions, now: float) -> None:
        session, group = self.session, submissions.group
        made = submissions.make(ask, self.lane.memory, self.lane.accounts, now)
        peer = ANY if ask.peer < 0 else group.members[ask.peer]
        if ask.collective == "send":
            session.submit_send(made, group.number, peer, now)
        elif ask.collective == "receive":
            session.submit_receive(made, group.number, peer, ask.tag, now)
        else:
            session.submit(made, group.number, now)

    def _open_group(self, ask: OpenGroup) -> None:
        members = tuple(ask.ranks)
        known = set(range(self.session.world_size))
        if ask.group in self.groups:
            raise BadMessage(f"group {ask.group} is open already")
        if len(set(members)) != len(members) or not set(members) <= known:
            raise BadMessage(f"group {ask.group}: ranks are different, and of this session")
        if self.session.rank not in members:
            raise BadMessage(f"group {ask.group}: rank {self.session.rank} is not a member")
        rank = members.index(self.session.rank)
        self._add_group(Group(ask.group, members, rank, ask.name or str(ask.group)))

    def _close_group(self, ask: CloseGroup) -> None:
        if self.groups.pop(ask.group, None) is None:
            raise BadMessage(f"group {ask.group} is not open")
        name = f"group {ask.group} was closed with operations open"
        self.session.fail_group(ask.group, SessionClosed(name))
