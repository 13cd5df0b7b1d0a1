"""Pool of scratch memory: for operands not yet reduced, encoded values and rounding errors."""

from collections import OrderedDict
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.core.wire.datagram import Bytes

SMALL: Final = 64 << 10  # bytes; the allocator keeps smaller buffers warm itself. 4 MiB for 4 KB
# would take new pages from the system for each of a thousand small operations in flight
MAX_KEPT: Final = 16  # times `size` is kept, 32 MB; memory beyond it is returned to the system
DIGITS: Final = 4  # binary digits of a buffer's size: at most an eighth of it is not used


class ScratchPool:
    """Buffers up to one size, reused while they are warm in the cache. Sizes are rounded up to
    DIGITS leading binary digits, so that similar sizes share buffers."""

    def __init__(self, size: int) -> None:
        self.size = size  # bytes
        self._free: OrderedDict[int, list[Bytes]] = OrderedDict()  # the size unused longest first
        self._kept = 0  # bytes

    def take(self, size: int) -> Bytes:
        """A buffer of `size` bytes, not cleared."""
        if size > self.size or size <= SMALL:
            return np.empty(size, np.uint8)
        room = self._room(size)
        free = self._free.get(room)
        if not free:
            return np.empty(room, np.uint8)[:size]
        self._free.move_to_end(room)
        self._kept -= room
        return free.pop()[:size]

    def give(self, buffer: NDArray[Any]) -> None:
        """Return what `take` gave, or a view of it as numbers."""
        whole: Any = buffer if buffer.base is None else buffer.base
        if not isinstance(whole, np.ndarray) or not SMALL < len(whole) <= self.size:
            return
        if len(whole) == self._room(len(whole)):
            self._free.setdefault(len(whole), []).append(whole)
            self._free.move_to_end(len(whole))
            self._kept += len(whole)
            self._forget()

    def _forget(self) -> None:
        """Free the buffers unused for longest while more than MAX_KEPT is kept."""
        while self._kept > MAX_KEPT * self.size:
            room, free = next(iter(self._free.items()))
            if free:
                self._kept -= len(free.pop())
            else:
                del self._free[room]

    def _room(self, size: int) -> int:
        """Bytes of the buffer for `size` bytes."""
        unit = 1 << max(size.bit_length() - DIGITS, 0)
        return min(-(-size // unit) * unit, self.size)
