"""Windows: the rows of a divided dimension that a rank needs for its rows of another one.

A convolution computes row i of its result from rows i * stride + start, and `length` rows on, of
its operand. A rank that has a shard of the result's rows, the anchor, reads one window of operand
rows. The rows that other ranks hold are its halo: `halo_exchange` sends them to it, and
`halo_reduce`, the adjoint, adds rows of a window to those of their owners.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Final, NamedTuple, TypeAlias

import torch
from torch import Tensor

Numbers: TypeAlias = tuple[int, int, int, int, int, bool, int]  # of a `Window`, in a graph
CACHED: Final = 1 << 14  # pairs of a window and a rank: a small network of 512 ranks


class Window(NamedTuple):
    """`size`: rows of the dimension that windows are of; `anchor`: rows of the other dimension;
    `wrap`: rows outside are those of the other end; `dilation`: distance of the rows that a call
    reads among the `length` ones. A negative stride reads rows backwards; windows are in the order
    of the dimension all the same."""

    size: int
    stride: int
    start: int
    length: int
    anchor: int
    wrap: bool = False
    dilation: int = 1

    @property
    def is_dense(self) -> bool:
        """Whether every row of a window is read."""
        return self.dilation == 1 and abs(self.stride) <= self.length

    def rows(self, parts: int) -> int:
        """Rows of a shard of the anchor, padding included."""
        return -(-self.anchor // parts)

    def reach(self, parts: int) -> int:
        """Rows of a window."""
        return (self.rows(parts) - 1) * abs(self.stride) + self.length


class Rows(NamedTuple):
    """Consecutive rows of one owner. `row`: in its shard; `place`: in the window."""

    owner: int
    row: int
    place: int
    rows: int


@lru_cache(CACHED)
def pieces(window: Window, rank: int, parts: int) -> tuple[Rows, ...]:
    """The window of a rank, without rows outside of the dimension and those that only padding of
    the anchor needs."""
    rows, shard = window.rows(parts), -(-window.size // parts)
    held = min(max(window.anchor - rank * rows, 0), rows)
    if not held:
        return ()
    first = rank * rows if window.stride > 0 else rank * rows + rows - 1
    begin = window.start + window.stride * first
    step = abs(window.stride)
    skipped = 0 if window.stride > 0 else rows - held
    place = skipped * step
    end = place + (held - 1) * step + window.length
    found = []
    while place < end:
        at = (begin + place) % window.size if window.wrap else begin + place
        if at >= window.size:
            break
        if at < 0:
            place -= at
            continue
        count = min(shard - at % shard, window.size - at, end - place)
        piece = Rows(at // shard, at % shard, place, count)
        whole = piece.owner == rank or window.is_dense
        found += [piece] if whole else _needed(piece, window, skipped, skipped + held)
        place += count
    return tuple(found)


def _needed(piece: Rows, window: Window, first: int, end: int) -> list[Rows]:
    """A piece without rows between those that a call reads for rows [first, end) of the anchor,
    counted in the order of windows."""
    found: list[Rows] = []
    for place in range(piece.place, piece.place + piece.rows):
        if not _is_read(place, window, first, end):
            continue
        if found and found[-1].place + found[-1].rows == place:
            found[-1] = found[-1]._replace(rows=found[-1].rows + 1)
        else:
            found.append(Rows(piece.owner, piece.row + place - piece.place, place, 1))
    return found


def _is_read(place: int, window: Window, first: int, end: int) -> bool:
    step = abs(window.stride)
    earliest = max(-(-(place - window.length + 1) // step), first)
    latest = min(place // step, end - 1)
    rows = range(earliest, latest + 1)
    return any((place - row * step) % window.dilation == 0 for row in rows)


@lru_cache(CACHED)
def sent_rows(window: Window, parts: int) -> int:
    """The most rows that a rank sends in an exchange."""
    sent = [0] * parts
    for rank in range(parts):
        for piece in pieces(window, rank, parts):
            sent[piece.owner] += piece.rows * (piece.owner != rank)
    return max(sent)


@lru_cache(CACHED)
def received_rows(window: Window, parts: int) -> int:
    """The most rows that a rank receives, and sends in the adjoint."""
    return max(
        sum(piece.rows for piece in pieces(window, rank, parts) if piece.owner != rank)
        for rank in range(parts)
    )


def rows_for(x: Tensor, dim: int, window: Window, rank: int, parts: int) -> list[Tensor]:
    """For each rank the rows of this one's shard that its window needs."""
    found = []
    for other in range(parts):
        needed = [one for one in pieces(window, other, parts) if one.owner == rank]
        found.append(_together([x.narrow(dim, one.row, one.rows) for one in needed], x, dim))
    return found


def window_of(
    given: Sequence[Tensor], dim: int, window: Window, rank: int, parts: int, *, fill: float
) -> Tensor:
    """The window of a rank, from the rows of each owner. `fill`: rows outside."""
    shape = list(given[0].shape)
    shape[dim] = window.reach(parts)
    if given[rank].shape[dim] == shape[dim]:
        return given[rank]  # nothing is missing, as of a kernel of one row
    made = given[0].new_empty(shape)
    taken, end = [0] * parts, 0
    for owner, _, place, count in pieces(window, rank, parts):
        made.narrow(dim, end, place - end).fill_(fill)
        rows = given[owner].narrow(dim, taken[owner], count)
        made.narrow(dim, place, count).copy_(rows)
        taken[owner] += count
        end = place + count
    made.narrow(dim, end, shape[dim] - end).fill_(fill)
    return made


def rows_back(y: Tensor, dim: int, window: Window, rank: int, parts: int) -> list[Tensor]:
    """For each owner the rows of this rank's window that are its."""
    found = []
    for owner in range(parts):
        its = [one for one in pieces(window, rank, parts) if one.owner == owner]
        found.append(_together([y.narrow(dim, one.place, one.rows) for one in its], y, dim))
    return found


def shard_of(given: Sequence[Tensor], dim: int, window: Window, rank: int, parts: int) -> Tensor:
    """The shard of a rank: the sum of the rows of each window. Its own come first: as nearly all
    rows are among them, nearly all are written once."""
    shape = list(given[0].shape)
    shape[dim] = -(-window.size // parts)
    if given[rank].shape[dim] == shape[dim] and not received_rows(window, parts):
        return given[rank]
    made = given[0].new_empty(shape)
    end = 0  # of the rows that have a value
    for other in (rank, *(one for one in range(parts) if one != rank)):
        rows, taken = given[other], 0
        for owner, row, _, count in pieces(window, other, parts):
            if owner != rank:
                continue
            more = rows.narrow(dim, taken, count)
            taken += count
            made.narrow(dim, end, max(row - end, 0)).zero_()
            if row >= end:
                made.narrow(dim, row, count).copy_(more)
            else:
                made.narrow(dim, end, max(row + count - end, 0)).zero_()
                made.narrow(dim, row, count).add_(more)
            end = max(end, row + count)
    made.narrow(dim, end, shape[dim] - end).zero_()
    return made


def counts_for(window: Window, rank: int, parts: int) -> tuple[list[int], list[int]]:
    """Rows that a rank sends to each other one in an exchange, and receives; of itself none."""
    sent, received = [0] * parts, [0] * parts
    for other in range(parts):
        for piece in pieces(window, other, parts):
            if piece.owner == rank and other != rank:
                sent[other] += piece.rows
            elif other == rank and piece.owner != rank:
                received[piece.owner] += piece.rows
    return sent, received


def row_bytes(shape: Sequence[int], dim: int, item: int) -> int:
    """Bytes of a row of a dimension."""
    return prod(shape[:dim]) * prod(shape[dim + 1 :]) * item


def _together(rows: list[Tensor], like: Tensor, dim: int) -> Tensor:
    if not rows:
        return like.narrow(dim, 0, 0)
    return rows[0] if len(rows) == 1 else torch.cat(rows, dim)
