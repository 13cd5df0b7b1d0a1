"""Data of operations not yet submitted here: a peer in step is often a little ahead."""

from dataclasses import dataclass, field
from typing import Final

from dlcpd.core.room import Room
from dlcpd.core.wire.datagram import DatagramGroup
from dlcpd.core.wire.rows import RowGroup

MAX_EARLY: Final = 256 << 10  # bytes; sixteen of the largest contributions that travel with READY
MAX_SESSION: Final = 16 << 20  # bytes of all flows of a session
MAX_CUT: Final = 1024  # operations remembered
Operation = tuple[int, int]  # stream, number


@dataclass(slots=True)
class EarlyData:
    """Copies of datagrams of one flow, by operation, up to `limit` bytes in all.

    Only of operations that the peer has announced by READY. Data beyond the limit are discarded:
    the peer must send them again.
    """

    limit: int = MAX_EARLY
    size: int = 0  # bytes
    session: Room = field(default_factory=lambda: Room(MAX_SESSION))  # of all flows
    _announced: set[Operation] = field(default_factory=set)
    _groups: dict[Operation, list[DatagramGroup]] = field(default_factory=dict)
    _cut: set[Operation] = field(default_factory=set)
    _carried: dict[Operation, int] = field(default_factory=dict)  # bytes that READY brought

    def announce(self, operation: Operation) -> None:
        """The peer has submitted `operation`; this rank has not."""
        self._announced.add(operation)

    def keep(self, group: DatagramGroup) -> bool:
        """Copy `group` out of io's buffer. False: no room, or an operation that is not
        announced."""
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
        self._add(held)
        self._groups.setdefault(operation, []).append(copied)
        return True

    def keep_carried(self, operation: Operation, size: int) -> bool:
        """Count `size` bytes that the READY of `operation` brought, and that its keeper holds until
        `take`. False: no room."""
        more = size - self._carried.get(operation, 0)  # a repetition replaces what is held
        if more > 0 and (self.size + more > self.limit or self.session.full):
            return False
        self._carried[operation] = size
        self._add(more)
        return True

    def take(self, operation: Operation) -> list[DatagramGroup]:
        """Remove and return what came for `operation`, in order of arrival."""
        self._announced.discard(operation)
        self._cut.discard(operation)
        groups = self._groups.pop(operation, [])
        size = self._carried.pop(operation, 0) + sum(map(_held, groups))
        if size:
            self._add(-size)
        return groups

    def _add(self, size: int) -> None:
        self.size += size
        self.session.used += size

    def was_cut(self, operation: Operation) -> bool:
        """Whether data of `operation` came and were discarded."""
        return operation in self._cut

    def _note_cut(self, operation: Operation) -> None:
        # An entry outlives its use only if a peer sends data of an operation that is never
        # submitted here. Clearing all entries costs a retransmission timeout, no data.
        if len(self._cut) >= MAX_CUT:
            self._cut.clear()
        self._cut.add(operation)


def _held(group: DatagramGroup) -> int:
    """Memory of a copy, bytes."""
    if not isinstance(group, RowGroup):
        return group.size
    return group.rows.nbytes + group.words.nbytes
