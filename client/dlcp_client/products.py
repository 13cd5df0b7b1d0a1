"""Products of matrices whose factor or result travels between ranks, in pieces that overlap.

A piece is some rows. While pieces are on their way, others are computed. A product begins when it
is made, and is complete after `result()`; between the two, the caller may compute other things. All
ranks of a group make the same products in the same order.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

from dlcp_client.group import Group
from dlcp_client.operations.work import Work
from dlcpd.contract.errors import ArenaFull
from dlcpd.contract.policy import EXACT

# Bytes of a piece at least: a smaller one costs more as an operation than it hides. With 8 pieces,
# an eighth of the shorter of computation and communication stays exposed.
SMALLEST: Final = 256 << 10
MOST: Final = 8

# Computes rows [start, stop) of the result, the last argument, from those rows of the sums
Finish = Callable[[Tensor, slice, Tensor], None]
Factors = Sequence[tuple[Tensor, Tensor]]  # [rows, k] and [k, columns] each


class RowsInFlight(NamedTuple):
    """Rows whose operation has begun."""

    rows: slice
    memory: Tensor  # in the arena
    work: Work[Tensor]


class InPieces:
    """Pieces in flight. Pieces that have ended, or the oldest one if the arena is full, make space
    for the next."""

    def __init__(self, group: Group[Tensor]) -> None:
        self.group: Final = group
        self._open: list[RowsInFlight] = []

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Memory in the arena. Raises: ArenaFull, or the error that ended an operation."""
        while self._open and self._open[0].work.done():
            self._end_oldest()
        while self._open:
            try:
                return self.group.session.empty(shape, dtype)
            except ArenaFull:
                self._end_oldest()
        return self.group.session.empty(shape, dtype, wait=EXACT.deadline)

    def begun(self, rows: slice, memory: Tensor, work: Work[Tensor]) -> None:
        """Take a piece whose operation has begun."""
        self._open.append(RowsInFlight(rows, memory, work))

    def end_all(self) -> None:
        """Use all pieces. Raises: the error that ended an operation."""
        while self._open:
            self._end_oldest()

    def used(self, rows: slice, memory: Tensor) -> None:
        """Use a piece that is complete; its memory is free afterwards."""
        raise NotImplementedError

    def _end_oldest(self) -> None:
        piece = self._open.pop(0)
        piece.work.wait()
        self.used(piece.rows, piece.memory)


class SummedProduct(InPieces):
    """The sum of the products of all ranks, of which this rank gets 1/`ranks` of the rows."""

    def __init__(
        self, group: Group[Tensor], factors: Factors, finish: Finish | None, ranks: int = 1
    ) -> None:
        super().__init__(group)
        a, b = factors[0]
        self._finish = finish or _copy
        self._out = a.new_empty((a.shape[0] // ranks, b.shape[1]))

    def result(self) -> Tensor:
        """[rows that this rank gets, columns]. Raises: the error that ended an operation."""
        self.end_all()
        return self._out

    def used(self, rows: slice, memory: Tensor) -> None:
        self._finish(memory, rows, self._out[rows])


class ReducedProduct(SummedProduct):
    """The sum, on every rank."""

    def __init__(
        self,
        group: Group[Tensor],
        factors: Factors,
        *,
        added: Tensor | None = None,
        finish: Finish | None = None,
        pieces: int = 0,
    ) -> None:
        """`factors`: their products are added; `added`: [columns]. `pieces`: 0: by size.

        Raises: ArenaFull.
        """
        super().__init__(group, factors, finish)
        for rows in cuts(self._out, pieces):
            sums = self.empty(self._out[rows].shape, self._out.dtype)
            _multiply(factors, rows, added, sums)
            self.begun(rows, sums, group.all_reduce(sums, result_only=True))


class ScatteredProduct(SummedProduct):
    """The same sum; each rank gets its part of the rows."""

    def __init__(
        self,
        group: Group[Tensor],
        factors: Factors,
        *,
        added: Tensor | None = None,
        finish: Finish | None = None,
        pieces: int = 0,
    ) -> None:
        """As `ReducedProduct`. The number of rows is a multiple of the number of ranks."""
        super().__init__(group, factors, finish, group.size)
        part = self._out.shape[0]
        for rows in cuts(self._out, pieces, group.size):
            sums = self.empty((group.size, *self._out[rows].shape), self._out.dtype)
            for rank, out in enumerate(sums):
                first = rank * part
                _multiply(factors, slice(first + rows.start, first + rows.stop), added, out)
            mine = sums[group.rank]
            self.begun(rows, mine, group.reduce_scatter(mine.view(-1), sums.view(-1)))


class GatheredProduct(InPieces):
    """The products of the parts of `a` of all ranks, one after another, with each of `bs`."""

    def __init__(
        self, group: Group[Tensor], a: Tensor, bs: Sequence[Tensor], *, pieces: int = 0
    ) -> None:
        """`a`: [rows / ranks, k], as many rows on every rank; `bs`: [k, columns] each. `pieces`: 0:
        by size. Raises: ArenaFull."""
        super().__init__(group)
        self._bs, (part, inner) = bs, a.shape
        self._whole = a.new_empty((group.size, part, inner))
        self._outs = [a.new_empty((group.size, part, b.shape[1])) for b in bs]
        for rows in cuts(a, pieces, group.size):
            parts = self.empty((group.size, rows.stop - rows.start, inner), a.dtype)
            mine = parts[group.rank].copy_(a[rows])
            self.begun(rows, parts, group.all_gather(parts.view(-1), mine.view(-1)))
        self._multiply(group.rank, slice(0, part), a)  # while the others' rows come

    def result(self) -> tuple[Tensor, list[Tensor]]:
        """All parts of `a`, [rows, k], and the products, [rows, columns] each. Raises: the error
        that ended an operation."""
        self.end_all()
        return self._whole.flatten(0, 1), [out.flatten(0, 1) for out in self._outs]

    def used(self, rows: slice, memory: Tensor) -> None:
        for rank, part in enumerate(memory):
            if rank != self.group.rank:
                self._multiply(rank, rows, part)

    def _multiply(self, rank: int, rows: slice, part: Tensor) -> None:
        self._whole[rank, rows] = part
        for b, out in zip(self._bs, self._outs, strict=True):
            torch.mm(part, b, out=out[rank, rows])


def cuts(part: Tensor, pieces: int, ranks: int = 1) -> list[slice]:
    """Rows of the pieces, whose numbers differ by at most 1. `part`: of a matrix, of which all
    `ranks` have as much. `pieces`: 0: by size."""
    rows = part.shape[0]
    count = pieces or min(part.nbytes * ranks // SMALLEST, MOST)
    count = max(1, min(count, rows))
    return [slice(rows * n // count, rows * (n + 1) // count) for n in range(count)]


def _multiply(factors: Factors, rows: slice, added: Tensor | None, out: Tensor) -> None:
    [(first, second), *others] = factors
    if added is None:
        torch.mm(first[rows], second, out=out)
    else:
        torch.addmm(added, first[rows], second, out=out)
    for a, b in others:
        out.addmm_(a[rows], b)


def _copy(sums: Tensor, _: slice, into: Tensor) -> None:
    into.copy_(sums)
