"""Allocates regions of the shared arena. Pure bookkeeping: offsets, not memory.

The arena is one memfd that a client and its engine both map. The client alone
allocates; the engine touches a region only between Submit and Released.
"""

from bisect import insort
from dataclasses import dataclass, field
from typing import Final

from dlcpd.contract.errors import ArenaFull

ALIGNMENT: Final = 4096  # bytes; a page, so regions never share one and reads stay aligned


def aligned(size: int) -> int:
    """`size` rounded up to ALIGNMENT."""
    return -(-size // ALIGNMENT) * ALIGNMENT


@dataclass(slots=True)
class Arena:
    """First-fit allocator over [0, size): low offsets are used again first, so pages stay hot."""

    size: int  # bytes
    _free: list[tuple[int, int]] = field(init=False)  # sorted, disjoint, never adjacent
    _used: dict[int, int] = field(default_factory=dict)  # offset -> bytes

    def __post_init__(self) -> None:
        self._free = [(0, self.size)]

    def allocate(self, size: int) -> int:
        """Offset of a free region of `size` bytes, aligned.

        Raises: ArenaFull; nothing is changed then.
        """
        need = aligned(max(size, 1))
        for index, (offset, length) in enumerate(self._free):
            if length >= need:
                rest = [(offset + need, length - need)] if length > need else []
                self._free[index : index + 1] = rest
                self._used[offset] = need
                return offset
        raise ArenaFull(
            f"arena of {self.size} B has no room for {size} B: {self.used} B in use by "
            f"{len(self._used)} tensors; wait for operations, drop tensors, or connect "
            f"with a larger arena_bytes"
        )

    def free(self, offset: int) -> None:
        """Free a region. Raises: KeyError if `offset` is not in use."""
        length = self._used.pop(offset)
        insort(self._free, (offset, length))
        index = self._free.index((offset, length))
        for left in (index, index - 1):  # merge with the right neighbour, then the left one
            if 0 <= left < len(self._free) - 1:
                (a, an), (b, bn) = self._free[left : left + 2]
                if a + an == b:
                    self._free[left : left + 2] = [(a, an + bn)]

    @property
    def used(self) -> int:
        """Bytes in use."""
        return sum(self._used.values())
