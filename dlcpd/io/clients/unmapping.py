"""Arenas of sessions that have ended, given back by a thread.

To free 4 GB of shared memory takes 0.75 s. A client that is killed leaves its arena to the engine,
which would be mute for that long; after a second, the peers of all its other jobs take it for dead.
What takes time here is done by calls that let the engine's own thread go on meanwhile.
"""

import ctypes
import gc
import mmap
import threading
import time
from typing import Final

from dlcpd.ipc.seqpacket import close_all

PATIENCE: Final = 60.0  # seconds for the last user of the memory to drop it
LOOK: Final = 0.01  # seconds between two looks whether it has
COLLECT_AFTER: Final = 0.2  # seconds; then what uses it is in cycles of a session that has ended,
# which the collector frees, and that does not run in an engine without work
# Python's own keeps all other threads waiting.
_madvise: Final = ctypes.CDLL(None, use_errno=True).madvise
_madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


def give_back(memory: mmap.mmap, at: int, descriptor: int) -> threading.Thread:
    """Unmap `memory`, which begins at address `at`, as soon as nobody uses it; then close
    `descriptor`, another one of its file: this frees the pages, unless another process has them.

    Where the host has no thread left, the last user of the memory unmaps it.
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
    # Only takes the pages out of this process, so that to unmap them is a matter of microseconds.
    _madvise(at, len(memory), mmap.MADV_DONTNEED)
    began, collected, pause = time.monotonic(), False, threading.Event()
    while not _unmapped(memory) and (waited := time.monotonic() - began) < PATIENCE:
        if waited > COLLECT_AFTER and not collected:
            gc.collect()
            collected = True
        pause.wait(LOOK)  # time.sleep raises under libfaketime, which has the clocks of tests jump
    close_all([descriptor])


def _unmapped(memory: mmap.mmap) -> bool:
    try:
        memory.close()
    except BufferError:  # there are arrays of it
        return False
    return True
