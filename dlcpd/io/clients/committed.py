"""Which bytes of an arena its client has committed. The kernel charges a page of shared memory to
the process that touches it first, so the engine touches only pages that are present.

A page that was found present stays so: from the first look on, the arena is sealed against all
calls that take pages out.
"""

import ctypes
import errno
import fcntl
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from dlcpd.contract.errors import ArenaFull, BadMessage
from dlcpd.requests.memory import Range

PAGE: Final = os.sysconf("SC_PAGE_SIZE")
PIECE: Final = 4 << 20  # bytes looked at in one go: some 70 us
MAX_RUNS: Final = 1024  # to remember; a client that commits in order has one
# Linux 5.1; Python has no name for it. Existing mappings stay writable. No process can map the file
# for writing any more, or punch holes (fallocate, madvise), which is how pages are taken out.
F_SEAL_FUTURE_WRITE: Final = 0x0010
_mincore: Final = ctypes.CDLL(None, use_errno=True).mincore
_mincore.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p


class Committed:
    """The committed bytes of the arena behind `descriptor`, which is mapped at `address`."""

    def __init__(self, descriptor: int, address: int) -> None:
        self._descriptor, self._address = descriptor, address
        self._starts: list[int] = []  # of runs that are present: sorted, apart
        self._stops: list[int] = []
        self._start = self._stop = 0  # of the last run that was looked up
        self._sealed = False
        self._present = np.empty(PIECE // PAGE, np.uint8)

    @property
    def runs(self) -> list[tuple[int, int]]:
        """Bytes that are known to be present, as (start, stop)."""
        return list(zip(self._starts, self._stops, strict=True))

    def knows(self, ranges: Iterable[Range]) -> bool:
        """Whether all `ranges` lie in the last run that was looked up: then there is nothing to
        do."""
        first, last = self._start, self._stop
        for start, stop, _ in ranges:
            if start < stop and not (first <= start and stop <= last):
                return False
        return True

    def look(self, ranges: Iterable[Range], ticket: int) -> Iterator[int]:
        """Check that `ranges` are present; yields the bytes of each piece of the work.

        Raises: ArenaFull where they are not, for operation `ticket`; BadMessage where the client's
        seals prevent the sealing.
        """
        if not self._sealed:
            self._seal(ticket)
            self._sealed = True
        for start, stop, _ in ranges:
            if start < stop:
                yield from self._look(start // PAGE * PAGE, -(-stop // PAGE) * PAGE, ticket)

    def _seal(self, ticket: int) -> None:
        try:
            if fcntl.fcntl(self._descriptor, fcntl.F_GET_SEALS) & F_SEAL_FUTURE_WRITE:
                return  # another engine has sealed it
            fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, F_SEAL_FUTURE_WRITE)
        except OSError as exc:
            if exc.errno == errno.EINVAL:
                return  # an older kernel: docs/security.md says what this leaves open
            if exc.errno == errno.EPERM:
                raise BadMessage("the arena has seals that its client has put there") from exc
            raise ArenaFull(  # of this operation alone: the next one tries again
                f"operation {ticket} uses an arena that cannot be sealed now: {exc.strerror}"
            ) from exc

    def _look(self, start: int, stop: int, ticket: int) -> Iterator[int]:
        at = start
        while at < stop:
            row = bisect_right(self._starts, at) - 1
            if row >= 0 and at < self._stops[row]:
                at = self._stops[row]
                continue
            following = self._starts[row + 1] if row + 1 < len(self._starts) else stop
            end = self._there(at, min(at + PIECE, stop, following))
            if end == at:
                raise _missing(at, start, stop, ticket)
            self._add(at, end)
            yield end - at
            at = end
        self._recall(start)

    def _there(self, start: int, stop: int) -> int:
        """The end of the run that is present from `start` on; at most `stop`, where mincore
        knows."""
        pages = (stop - start) // PAGE
        if not _mincore(self._address + start, stop - start, self._present.ctypes.data):
            present = self._present[:pages] & 1
            first = pages if present.all() else int(present.argmin())
            if first:
                return start + first * PAGE
        # Swapped out, or a kernel that does not say: the file system knows, beyond `stop` too.
        try:
            return -(-os.lseek(self._descriptor, start, os.SEEK_HOLE) // PAGE) * PAGE
        except OSError:
            return start

    def _add(self, start: int, stop: int) -> None:
        """Add a run, and merge it with those that it touches."""
        first = bisect_right(self._stops, start - 1)
        last = bisect_right(self._starts, stop)
        if first < last:
            start, stop = min(start, self._starts[first]), max(stop, self._stops[last - 1])
        self._starts[first:last], self._stops[first:last] = [start], [stop]
        if len(self._starts) > MAX_RUNS:
            self._forget_shortest()

    def _forget_shortest(self) -> None:
        row = min(range(len(self._starts)), key=lambda row: self._stops[row] - self._starts[row])
        del self._starts[row], self._stops[row]

    def _recall(self, at: int) -> None:
        row = bisect_right(self._starts, at) - 1
        if row >= 0:
            self._start, self._stop = self._starts[row], self._stops[row]


def _missing(at: int, start: int, stop: int, ticket: int) -> ArenaFull:
    return ArenaFull(
        f"operation {ticket} uses bytes {start}..{stop} of the arena, and byte {at} has no memory "
        f"behind it: commit memory (posix_fallocate, then write to it) before it is submitted"
    )
