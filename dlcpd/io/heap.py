"""Memory of temporary arrays stays in this process, where the next ones find it.

numpy makes some arrays for a moment at each piece of an operation, and the C library gives their
pages back to the system as soon as the end of its heap is free: encoding a tensor took twice as
long as it computes, for pages that were mapped, cleared and unmapped again.
"""

import ctypes
from typing import Final

KEPT: Final = 8 << 20  # bytes at the end of the heap; 128 KiB is the C library's default
LARGE: Final = 1 << 20  # bytes of an array that is mapped by itself, and goes back at once
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h of glibc


def keep_warm() -> None:
    """Do so from now on; nothing where the C library has no such settings (musl)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, KEPT)
        mallopt(_MMAP_THRESHOLD, LARGE)
