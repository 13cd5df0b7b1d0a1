"""Memory for what arrives and is not yet reduced."""

from typing import Any, Final

import numpy as np

from dlcpd.core.wire.datagram import Bytes

SMALL: Final = 64 << 10  # bytes; what the allocator keeps warm itself: 4 MiB for 4 KB would be
# pages of the system's for each of a thousand small operations in flight
MAX_KEPT: Final = 16  # buffers kept warm, 32 MB; a burst beyond it is returned to the system


class ScratchPool:
    """Buffers of one size, used again while they are warm in the cache."""

    def __init__(self, size: int) -> None:
        self.size = size  # bytes
        self._free: list[Bytes] = []

    def take(self, size: int) -> Bytes:
        """`size` bytes with whatever they held."""
        if size > self.size or size <= SMALL:
            return np.empty(size, np.uint8)
        whole = self._free.pop() if self._free else np.empty(self.size, np.uint8)
        return whole[:size]

    def give(self, buffer: Bytes) -> None:
        """Return what `take` gave."""
        whole: Any = buffer if buffer.base is None else buffer.base
        if isinstance(whole, np.ndarray) and len(whole) == self.size and len(self._free) < MAX_KEPT:
            self._free.append(whole)
