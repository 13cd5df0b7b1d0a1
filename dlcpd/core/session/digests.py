"""Proof that replicas stay equal (P2): digests of results, compared between ranks."""

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from dlcpd.core.wire.datagram import Bytes

REMEMBERED: Final = 256  # operations; peers are never further apart than their operations in flight
MASK: Final = (1 << 64) - 1
_ODD: Final = 0x9E3779B97F4A7C15  # 2**64 / golden ratio: spreads chunk numbers


def digest_bytes(data: Bytes, chunk: int) -> int:
    """64-bit sum of `data`, dependent on which chunk it is.

    A sum modulo 2**64, not a hash: it runs at memory speed. A single word that differs changes the
    sum, and the multiplication that follows maps different sums to different digests.
    """
    words = len(data) // 8
    total = int(np.add.reduce(data[: words * 8].view("<u8"), dtype=np.uint64))
    for position, byte in enumerate(data[words * 8 :].tolist(), 1):
        total += byte * (position << 8)
    return (total + chunk + 1) * (_ODD * (2 * chunk + 1)) & MASK


@dataclass(slots=True)
class DigestBook:
    """Own digests by operation, those to tell, and those peers sent before we had ours."""

    _own: OrderedDict[int, int] = field(default_factory=OrderedDict)
    _early: OrderedDict[tuple[int, int], int] = field(default_factory=OrderedDict)
    _untold: dict[int, deque[int]] = field(default_factory=dict)  # by rank: operations in order

    def next_for(self, rank: int) -> tuple[int, int]:
        """(operation, digest) that `rank` has not been told; (0, 0) when there is none.

        One READY carries one digest, and there are as many READYs as results: all of
        them get told, however many operations are in flight.
        """
        untold = self._untold.get(rank)
        operation = untold.popleft() if untold else 0
        return operation, self._own.get(operation, 0)

    def add(self, operation: int, digest: int, ranks: Iterable[int]) -> int | None:
        """Our digest, for `ranks`. Returns a rank that disagrees, if one is known to."""
        self._own[operation] = digest
        for rank in ranks:
            self._untold.setdefault(rank, deque(maxlen=REMEMBERED)).append(operation)
        if len(self._own) > REMEMBERED:
            self._own.popitem(last=False)
        for (rank, number), theirs in list(self._early.items()):
            if number == operation:
                del self._early[rank, number]
                if theirs != digest:
                    return rank
        return None

    def check(self, rank: int, operation: int, digest: int) -> bool:
        """A peer's digest. False: it has another result than we."""
        mine = self._own.get(operation)
        if mine is not None:
            return mine == digest
        if operation:
            self._early[rank, operation] = digest
            if len(self._early) > 8 * REMEMBERED:
                self._early.popitem(last=False)
        return True

    @property
    def size(self) -> int:
        """Digests kept."""
        return len(self._own) + len(self._early)
