"""Control datagrams and small data that wait until there is time to handle them.

Peers repeat datagrams that are not answered in time. When more arrive than can be handled, most are
repetitions, and each takes the place of the datagram that it repeats.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dlcpd.core.paths.newest import WRAP
from dlcpd.core.wire.header import Header, Kind

MOST_WAITING: Final = 1 << 16  # datagrams, some 300 bytes each with their key; those that come
# while as many wait are lost, and repeated by the peer
MOST_BYTES: Final = 32 << 20  # bytes, likewise: a datagram may have 9 KB
# Each contains all that an earlier one of the same key said. The others add to it.
REPEATED: Final = frozenset({Kind.READY, Kind.READY_ACK, Kind.END})


class Waiting(NamedTuple):
    """A datagram whose checksum is right."""

    header: Header
    data: bytes
    arrived_at: float


@dataclass(slots=True)
class Inbox:
    """First come, first served."""

    repeated: int = 0  # duplicates of a datagram that waited
    lost: int = 0  # for want of room
    # an OrderedDict: a plain dict that has lost its first n keys takes n steps to find the next
    _waiting: OrderedDict[Hashable, Waiting] = field(default_factory=OrderedDict)
    _number: int = 0
    _size: int = 0  # bytes of the datagrams that wait

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, header: Header, data: bytes, arrived_at: float) -> None:
        """Keep a datagram; of repetitions, the one that was sent last."""
        key = self._key(header)
        former = self._waiting.get(key)
        if former is not None:
            self.repeated += 1
            if not _is_newer(header.sent_at, former.header.sent_at):
                return
            self._size -= len(former.data)
        elif len(self._waiting) >= MOST_WAITING or self._size + len(data) > MOST_BYTES:
            self.lost += 1
            return
        self._size += len(data)
        self._waiting[key] = Waiting(header, data, arrived_at)  # in the place of the former

    def take(self) -> Waiting:
        """Remove and return the one that has waited longest. Raises: KeyError where none waits."""
        taken = self._waiting.popitem(last=False)[1]
        self._size -= len(taken.data)
        return taken

    def _key(self, header: Header) -> Hashable:
        if header.kind in REPEATED:
            return header.kind, header.token, header.path, header.tag, *header.key
        self._number += 1
        return self._number


def _is_newer(stamp: int, other: int) -> bool:
    return 0 < (stamp - other) % WRAP < WRAP // 2
