"""Refuses operations that would use arena memory which another operation reads or writes.

Both would run at once, and give wrong results. Two reads of the same memory are no conflict.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from dlcpd.collectives.execution import Execution
from dlcpd.contract.errors import BadOperation
from dlcpd.contract.messages import Submit
from dlcpd.numerics.elements import STORAGE

FIRST_ROWS: Final = 64  # doubled when more than half of them are in use: two per operation


class Range(NamedTuple):
    """Bytes of an arena that an operation uses. An empty range conflicts with none."""

    start: int
    stop: int
    writes: bool


class Claims:
    """Ranges of the operations of one client; `open_` tells whether an operation still runs.

    The table is not told of an operation's end. It checks for it in its last rows, which is all if
    operations do not overlap; when another operation would use the same memory; and when no row is
    left. So a submission costs two comparisons of short arrays at most.
    """

    def __init__(self, open_: Callable[[Execution], bool]) -> None:
        self._open = open_
        self._starts = np.zeros(FIRST_ROWS, np.int64)
        self._stops = np.zeros(FIRST_ROWS, np.int64)
        self._writes = np.zeros(FIRST_ROWS, bool)
        self._holders: list[Execution] = []  # by row

    def __len__(self) -> int:
        """Rows in use, for operations that have ended as well."""
        return len(self._holders)

    def claim(self, operation: Execution, ranges: list[Range]) -> None:
        """Add the ranges that an operation will use.

        Raises: BadOperation if one is in use; nothing is added then.
        """
        wanted = [each for each in ranges if each.start < each.stop]
        holders = self._holders
        while holders and not self._open(holders[-1]):
            holders.pop()
        if holders:
            for each in wanted:
                self._check(operation, each)
        for each in wanted:
            self._add(operation, each)

    def _check(self, operation: Execution, wanted: Range) -> None:
        rows = len(self._holders)
        overlap = self._starts[:rows] < wanted.stop
        overlap &= self._stops[:rows] > wanted.start
        if not wanted.writes:
            overlap &= self._writes[:rows]
        for row in np.flatnonzero(overlap).tolist() if overlap.any() else ():
            holder = self._holders[row]
            if self._open(holder):
                start, stop = int(self._starts[row]), int(self._stops[row])
                raise BadOperation(
                    f"operation {operation.ticket} would {'write' if wanted.writes else 'read'} "
                    f"bytes {wanted.start}..{wanted.stop} of the arena while operation "
                    f"{holder.ticket} {'writes' if self._writes[row] else 'reads'} "
                    f"{start}..{stop}: wait for that one first, or use other memory"
                )
            self._starts[row] = self._stops[row] = 0  # ended: an empty range has no conflict

    def _add(self, operation: Execution, wanted: Range) -> None:
        if len(self._holders) == len(self._starts):
            self._sweep()
        row = len(self._holders)
        self._starts[row], self._stops[row], self._writes[row] = wanted
        self._holders.append(operation)

    def _sweep(self) -> None:
        """Remove ended operations; add rows if more than half are still in use."""
        kept = [row for row, holder in enumerate(self._holders) if self._open(holder)]
        rows = len(self._holders)
        empty = [0] * (rows if 2 * len(kept) > rows else rows - len(kept))
        self._starts = np.array([*self._starts[kept].tolist(), *empty], np.int64)
        self._stops = np.array([*self._stops[kept].tolist(), *empty], np.int64)
        self._writes = np.array([*self._writes[kept].tolist(), *empty], bool)
        self._holders = [self._holders[row] for row in kept]


def ranges_of(ask: Submit) -> list[Range]:
    """Ranges that a request reads and writes; adding residuals writes the input, too, and so do the
    sums from which a client computes."""
    item = STORAGE[ask.dtype].itemsize
    writes = ask.max_loss > 0 or ask.name != "" or ask.computes
    given = Range(ask.input, ask.input + ask.input_count * item, writes)
    made = Range(ask.output, ask.output + ask.output_count * item, writes=True)
    return [made] if given[:2] == made[:2] else [given, made]
