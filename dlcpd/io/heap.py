"""Keeps the memory of temporary arrays in this process, for the next ones.

numpy makes some arrays briefly at each piece of an operation, and the C library gives their pages
back to the system as soon as the end of its heap is free: encoding a tensor took twice as long as
its computation, for pages that were mapped, cleared and unmapped again.

Also keeps the garbage collector off the objects that live to the end.
"""

import ctypes
import gc
from typing import Final

KEPT: Final = 8 << 20  # bytes at the end of the heap; 128 KiB is the C library's default
LARGE: Final = 1 << 20  # bytes of an array that is mapped by itself, and unmapped at once
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h of glibc


def keep_warm() -> None:
    """Set the thresholds of the C library; no effect where it has none (musl)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, KEPT)
        mallopt(_MMAP_THRESHOLD, LARGE)


def collect_rarely() -> None:
    """Keep the objects that exist now out of garbage collections, and make those rare."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # the data path makes no cycles
