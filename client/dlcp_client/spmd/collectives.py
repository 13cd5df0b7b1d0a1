"""The calls of a divided graph: collectives by their meaning, and the steps of a rank alone.

A graph has one input, `ranks`, whose methods it calls: `Ranks`. Every rank runs the same text; its
coordinates are known to `ranks` only.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from .meshes import Mesh
from .random_bits import hashed
from .sharding import Split, Splits
from .windows import Numbers, Window, rows_back, rows_for, shard_of, window_of


class Ranks(Protocol):
    """One rank of a mesh. Shards have equal shapes on all ranks: the last ones are padded."""

    def all_gather(self, x: Tensor, axis: str, dim: int, size: int) -> Tensor:
        """The shards of `dim` together, without padding: `size` rows."""

    def all_reduce(self, x: Tensor, axis: str) -> Tensor:
        """The sum of the partial sums."""

    def reduce_scatter(self, x: Tensor, axis: str, dim: int) -> Tensor:
        """This rank's shard of `dim` of the sum."""

    def all_to_all(self, x: Tensor, axis: str, dim: int, to: int, size: int) -> Tensor:
        """The shards of `dim` together (`size` rows), but this rank's shard of dimension `to`."""

    def halo_exchange(self, x: Tensor, axis: str, dim: int, window: Numbers, fill: float) -> Tensor:
        """This rank's window of a dimension; the numbers are those of `Window`."""

    def halo_reduce(self, x: Tensor, axis: str, dim: int, window: Numbers) -> Tensor:
        """This rank's shard of the sum of the windows of all."""

    def shard(self, x: Tensor, axis: str, dim: int) -> Tensor:
        """This rank's shard of a dimension that it holds as a whole."""

    def axis_index(self, axis: str) -> Tensor:
        """This rank's place along an axis."""

    def bits(self, shape: Sequence[int], splits: Sequence[Splits], number: int) -> Tensor:
        """This rank's shard of random bits."""

    def masked(self, x: Tensor, dim: int, size: int, axes: Sequence[str]) -> Tensor:
        """`x` with zeros as padding of a dimension, whose `size` rows those axes divide."""

    def fill_outside(
        self, x: Tensor, axis: str, dim: int, margin: tuple[int, int], fill: float
    ) -> Tensor:
        """`x` itself, a shard with a margin; its rows outside of the dimension become `fill`."""


class Position:
    """The calls that need no other rank. `at`: the coordinates of this one; `seed`: of random
    numbers, the same on every rank, another one in each step."""

    def __init__(self, mesh: Mesh, rank: int) -> None:
        self.mesh, self.at, self.seed = mesh, mesh.coordinates(rank), 0

    def shard(self, x: Tensor, axis: str, dim: int) -> Tensor:
        return shards(x, dim, self.mesh.sizes[axis])[self.at[axis]]

    def axis_index(self, axis: str) -> Tensor:
        return torch.tensor(self.at[axis])

    def masked(self, x: Tensor, dim: int, size: int, axes: Sequence[str]) -> Tensor:
        """The padding is replaced, not multiplied: it may be infinite or not a number."""
        held = self.mesh.rows_held(size, tuple(map(Split, axes)), self.at)
        if held == x.shape[dim]:
            return x
        return padded(x.narrow(dim, 0, held), dim, x.shape[dim])

    def fill_outside(
        self, x: Tensor, axis: str, dim: int, margin: tuple[int, int], fill: float
    ) -> Tensor:
        """In place: nothing reads those rows before."""
        total, (before, after) = x.shape[dim], margin
        rows, at = total - before - after, self.at[axis]
        first = max(before - at * rows, 0)
        last = max(after - (self.mesh.sizes[axis] - 1 - at) * rows, 0)
        x.narrow(dim, 0, first).fill_(fill)
        x.narrow(dim, total - last, last).fill_(fill)
        return x

    def bits(self, shape: Sequence[int], splits: Sequence[Splits], number: int) -> Tensor:
        """This rank's shard of the random bits of a tensor of `shape`. The splits of a dimension
        are pairs of an axis and blocks."""
        places = []
        for size, each in zip(shape, splits, strict=True):
            rows = torch.arange(size)
            for axis, outer in each:
                rows = self.shard(rows.view(outer, -1), axis, 1).flatten()
            places.append(rows)
        return hashed(places, number, seed=self.seed)


def padded(x: Tensor, dim: int, rows: int) -> Tensor:
    """`x` with zeros at the end of a dimension."""
    more = rows - x.shape[dim]
    return pad(x, [0] * (2 * (x.dim() - 1 - dim)) + [0, more]) if more else x


def shards(x: Tensor, dim: int, parts: int) -> list[Tensor]:
    """Equal shards of a dimension; the last ones are padded."""
    rows = -(-x.shape[dim] // parts)
    whole = padded(x, dim, rows * parts)
    return [one.contiguous() for one in torch.split(whole, max(rows, 1), dim)]


def all_gather(given: Sequence[Tensor], dim: int, size: int) -> list[Tensor]:
    """`Ranks.all_gather`, from the tensors of all members to their results; so are the others."""
    whole = torch.cat(list(given), dim).narrow(dim, 0, size).contiguous()
    return [whole] * len(given)


def all_reduce(given: Sequence[Tensor]) -> list[Tensor]:
    """The sum, of the same type."""
    return [torch.stack(list(given)).sum(0, dtype=given[0].dtype)] * len(given)


def reduce_scatter(given: Sequence[Tensor], dim: int) -> list[Tensor]:
    """Shards of the sum."""
    return shards(all_reduce(given)[0], dim, len(given))


def all_to_all(given: Sequence[Tensor], dim: int, to: int, size: int) -> list[Tensor]:
    """Shards of another dimension."""
    return shards(all_gather(given, dim, size)[0], to, len(given))


def halo_exchange(given: Sequence[Tensor], dim: int, window: Numbers, fill: float) -> list[Tensor]:
    """The window of each member."""
    of, parts = Window(*window), len(given)
    sent = [rows_for(x, dim, of, rank, parts) for rank, x in enumerate(given)]
    return [
        window_of(each, dim, of, to, parts, fill=fill)
        for to, each in enumerate(zip(*sent, strict=True))
    ]


def halo_reduce(given: Sequence[Tensor], dim: int, window: Numbers) -> list[Tensor]:
    """The sum of the windows' rows, at each member the rows of its shard."""
    of, parts = Window(*window), len(given)
    sent = [rows_back(y, dim, of, rank, parts) for rank, y in enumerate(given)]
    return [shard_of(each, dim, of, to, parts) for to, each in enumerate(zip(*sent, strict=True))]


# From the tensors of the members of a group, in order, to their results: what `Ranks` means.
MEANING: Final[Mapping[str, Callable[..., list[Tensor]]]] = {
    "all_gather": all_gather,
    "all_reduce": all_reduce,
    "reduce_scatter": reduce_scatter,
    "all_to_all": all_to_all,
    "halo_exchange": halo_exchange,
    "halo_reduce": halo_reduce,
}
