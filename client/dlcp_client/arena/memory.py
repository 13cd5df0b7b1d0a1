"""The shared arena: maps the memfd, commits its pages, frees unused blocks.

An array owns its memory: views keep it, and it is freed with the last of them.
"""

import ctypes
import mmap
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Final

import numpy as np

from dlcpd.contract.arena import Arena, aligned
from dlcpd.contract.errors import ArenaFull
from dlcpd.ipc.memory_limit import MemoryLeft, memory_left

OFFSET_UNIT: Final = 64  # bytes; the engine takes operations only at multiples: a cache line
COMMIT_STEP: Final = 4 << 20  # bytes; large enough to be rare, small enough not to hoard
_POPULATE_WRITE: Final = 23  # MADV_POPULATE_WRITE, Linux 5.14; Python 3.11 has no name for it


class Region:
    """Bytes of the arena, freed with the last of this object and its parts."""

    __slots__ = ("_dead", "_whole", "address", "memory", "offset")

    def __init__(
        self, memory: memoryview, address: int, offset: int, dead: deque[int] | None
    ) -> None:
        """`dead`: gets the offset at the end; None: of a part."""
        self.address, self.offset = address, offset
        self.memory, self._dead = memory, dead  # the memory stays mapped for as long
        self._whole: Region | None = None

    def part(self, start: int, size: int) -> "Region":
        """`size` bytes from byte `start` on."""
        memory = self.memory[start : start + size]
        part = Region(memory, self.address + start, self.offset + start, None)
        part._whole = self
        return part

    def __len__(self) -> int:
        return len(self.memory)

    def __del__(self) -> None:
        if self._dead is not None:
            self._dead.append(self.offset)


class SharedArena:
    """Memory in one memfd of `size` bytes. Takes over the descriptor. Thread-safe."""

    def __init__(
        self, descriptor: int, size: int, left: Callable[[], MemoryLeft | None] = memory_left
    ) -> None:
        """`left`: the memory that the control groups leave this process now."""
        self._left = left
        self._lock = threading.Lock()
        self._arena, self._size = Arena(size), size
        self._committed = 0
        # Filled by finalizers, which the garbage collector may run inside the lock: no lock there.
        self._dead: deque[int] = deque()
        self._descriptor = descriptor
        try:
            self._map: mmap.mmap | None = mmap.mmap(descriptor, size)
        except OSError as exc:
            os.close(descriptor)
            raise ArenaFull(
                f"this process cannot map an arena of {size} B: {exc.strerror}; raise the "
                "limit on address space (ulimit -v) or connect with a smaller arena_bytes"
            ) from exc
        _advise(self._map, mmap.MADV_HUGEPAGE, 0, size)
        self._view = memoryview(self._map)
        self._base = int(np.frombuffer(self._view, np.uint8, count=1).ctypes.data)

    @property
    def size(self) -> int:
        """Bytes."""
        return self._size

    @property
    def used(self) -> int:
        """Bytes allocated."""
        with self._lock:
            self._bury()
            return self._arena.used

    def memory(self, size: int) -> memoryview:
        """`size` bytes, at least one; they are freed with the returned object.

        Raises: ArenaFull; nothing changed.
        """
        offset = self._allocate(size)
        memory = self._view[offset : offset + size]
        weakref.finalize(memory, self._dead.append, offset).atexit = False
        return memory

    def region(self, size: int) -> Region:
        """`size` bytes, at least one, as a Region with its address and offset.

        Raises: ArenaFull; nothing changed.
        """
        offset = self._allocate(size)
        return Region(self._view[offset : offset + size], self._base + offset, offset, self._dead)

    def around(self, address: int, size: int) -> Region:
        """The bytes of an array of the arena, as a Region that frees nothing."""
        offset = address - self._base
        return Region(self._view[offset : offset + size], address, offset, None)

    def committed(self, start: int, size: int) -> int:
        """Back `size` bytes from offset `start` with memory. Returns their address.

        Raises: ArenaFull.
        """
        with self._lock:
            if self._map is None:
                raise ArenaFull("the session is closed")
            self._commit(self._map, start + size)
        return self._base + start

    def _allocate(self, size: int) -> int:
        with self._lock:
            if self._map is None:
                raise ArenaFull("the session is closed: its arena takes no new tensors")
            if self._dead:
                self._bury()
            offset = self._arena.allocate(size)
            try:
                if offset + size > self._committed:  # that is a multiple of a page
                    self._commit(self._map, offset + aligned(size))
            except BaseException:
                self._arena.free(offset)
                raise
        return offset

    def offset_of(self, address: int) -> int:
        """Bytes from the start of the arena to the array at `address`; -1 if the engine cannot work
        there: it is outside the arena, or not aligned."""
        offset = address - self._base
        return offset if 0 <= offset < self._size and not offset % OFFSET_UNIT else -1

    def close(self) -> None:
        """Release the memory; it stays mapped until the last array in it is gone.

        A session is part of reference cycles. Its memory must not wait for the garbage collector,
        because the next session of this process needs as much.
        """
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._map, self._view = None, memoryview(b"")

    def abandon(self) -> None:
        """In a forked child: arrays stay readable; only the parent allocates."""
        self._lock = threading.Lock()
        self.close()

    def _bury(self) -> None:
        while self._dead:
            self._arena.free(self._dead.popleft())

    def _commit(self, mapped: mmap.mmap, end: int) -> None:
        """Back everything up to `end` with memory.

        Without it, the first write to a page that the kernel cannot provide raises SIGBUS instead
        of an error. If the control group is out of memory, the kernel kills the process.
        """
        missing = end - self._committed
        if missing <= 0:
            return
        step = min(-(-missing // COMMIT_STEP) * COMMIT_STEP, self._arena.size - self._committed)
        self._check_room(step)
        # First through the mapping: only a page fault in it yields huge pages. If madvise is
        # refused (old kernel, no memory), fallocate allocates, or reports the reason.
        populated = _advise(mapped, _POPULATE_WRITE, self._committed, step)
        try:
            os.posix_fallocate(self._descriptor, self._committed, step)
        except OSError as exc:
            raise ArenaFull(
                f"no memory for {step} B more of the arena ({self._committed} B committed, "
                f"{self._arena.used} B in use): {exc.strerror}; free memory on this host, raise "
                f"the memory limit of the job, or submit fewer tensors at once"
            ) from exc
        if not populated:  # fallocate alone leaves pages unwritten; the engine needs written ones
            mapped[self._committed : self._committed + step : mmap.PAGESIZE] = bytes(
                -(-step // mmap.PAGESIZE)
            )
        self._committed += step

    def _check_room(self, step: int) -> None:
        """Raises: ArenaFull."""
        left = self._left()
        if left is not None and left.size < step:
            raise ArenaFull(
                f"no memory for {step} B more of the arena ({self._committed} B committed, "
                f"{self._arena.used} B in use): the kernel kills a process of the control "
                f"group after {left.size} B more, because its {left.file} is {left.limit} B; "
                "raise that limit, or submit fewer tensors at once"
            )


# copy_bytes(target, source, size): copies `size` bytes from one address to another.
# memmove, not Tensor.copy_: streaming stores and no OpenMP team. Two OpenMP threads that share
# cores with the engine took 10 ms for 64 MB, this 3.5 ms.
copy_bytes: Final[Callable[[int, int, int], object]] = ctypes.memmove


def _advise(memory: mmap.mmap, advice: int, start: int, length: int) -> bool:
    """Whether the kernel took the advice. A refusal is harmless: older kernels lack some advice."""
    try:
        memory.madvise(advice, start, length)
    except OSError:
        return False
    return True
