"""Unmaps the arenas of sessions that have ended, in a thread.

Freeing 4 GB of shared memory takes 0.75 s. A client that is killed leaves its arena to the engine,
which would be silent for that long; after a second, the peers of all its other jobs would suspect
it. The slow calls here let the engine's own thread go on meanwhile.
"""

import ctypes
import gc
import mmap
import threading
import time
from typing import Final

from dlcpd.ipc.seqpacket import close_all

PATIENCE: Final = 60.0  # seconds for the last user of the memory to drop it
LOOK: Final = 0.01  # seconds between two checks whether it has
COLLECT_AFTER: Final = 0.2  # seconds; users left by then are in cycles of a session that has
# ended. The collector frees those, and does not run in an engine without work
# Python's own madvise blocks all other threads.
_madvise: Final = ctypes.CDLL(None, use_errno=True).madvise
_madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


def give_back(memory: mmap.mmap, at: int, descriptor: int) -> threading.Thread:
    """Unmap `memory`, which begins at address `at`, as soon as it has no users; then close
    `descriptor`, another one of its file: this frees the pages, unless another process has them.

    If the host has no thread left, the last user of the memory unmaps it.
    """
    thread = threading.Thread(
        target=_give_back, args=(memory, at, descriptor), name="unmapping", daemon=True
    )
    try:
        thread.start()
    except RuntimeError:  # see clone(2): EAGAIN
        close_all([descriptor])
    return thread


def _give_back(memory: mmap.mmap, at: int, descriptor: int) -> None:
    # Takes the pages out of this process, so that unmapping them takes microseconds.
    _madvise(at, len(memory), mmap.MADV_DONTNEED)
    began, collected, pause = time.monotonic(), False, threading.Event()
    while not _unmapped(memory) and (waited := time.monotonic() - began) < PATIENCE:
        if waited > COLLECT_AFTER and not collected:
            gc.collect()
            collected = True
        pause.wait(LOOK)  # time.sleep raises under libfaketime, which makes clocks jump
    close_all([descriptor])


def _unmapped(memory: mmap.mmap) -> bool:
    try:
        memory.close()
    except BufferError:  # arrays still use it
        return False
    return True
