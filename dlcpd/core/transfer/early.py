"""Data of operations not submitted here yet: a peer in step is often a little ahead."""

from dataclasses import dataclass, field
from typing import Final

from dlcpd.core.room import Room
from dlcpd.core.wire.datagram import Group
from dlcpd.core.wire.rows import RowGroup

MAX_EARLY: Final = 256 << 10  # bytes; sixteen of the largest contributions that come unasked
MAX_SESSION: Final = 16 << 20  # bytes of all flows of a session
MAX_CUT: Final = 1024  # operations remembered
Operation = tuple[int, int]  # stream, number


@dataclass(slots=True)
class EarlyData:
    """Copies of datagrams of one flow, by operation, up to `limit` bytes in all.

    Only of operations that the peer has announced by READY. What does not fit is cut: the
    peer must be asked for it again.
    """

    limit: int = MAX_EARLY
    size: int = 0  # bytes
    session: Room = field(default_factory=lambda: Room(MAX_SESSION))  # of all flows
    _announced: set[Operation] = field(default_factory=set)
    _groups: dict[Operation, list[Group]] = field(default_factory=dict)
    _cut: set[Operation] = field(default_factory=set)

    def announce(self, operation: Operation) -> None:
        """The peer has submitted `operation`; we have not."""
        self._announced.add(operation)

    def keep(self, group: Group) -> bool:
        """Copy `group` out of io's buffer; False when there is no room for it."""
        operation = (group.header.stream, group.header.operation)
        full = self.size + group.size > self.limit or self.session.full
        if full or operation not in self._announced:
            self._note_cut(operation)
            return False
        copied = group.copy()
        held = _held(copied)  # short datagrams take rows as long as the longest
        if self.size + held > self.limit:
            self._note_cut(operation)
            return False
        self.size += held
        self.session.used += held
        self._groups.setdefault(operation, []).append(copied)
        return True

    def take(self, operation: Operation) -> list[Group]:
        """Remove and return what came for `operation`, in order of arrival."""
        self._announced.discard(operation)
        self._cut.discard(operation)
        groups = self._groups.pop(operation, [])
        if groups:
            size = sum(map(_held, groups))
            self.size -= size
            self.session.used -= size
        return groups

    def was_cut(self, operation: Operation) -> bool:
        """Whether data of `operation` came that is not kept."""
        return operation in self._cut

    def _note_cut(self, operation: Operation) -> None:
        # An entry outlives its use only where a peer sends what nobody submits; forgetting
        # all of them costs a retransmission timer, not data.
        if len(self._cut) >= MAX_CUT:
            self._cut.clear()
        self._cut.add(operation)


def _held(group: Group) -> int:
    """Bytes that a copy takes."""
    if not isinstance(group, RowGroup):
        return group.size
    return group.rows.nbytes + group.words.nbytes
