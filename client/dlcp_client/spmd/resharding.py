"""From one sharding to another: the steps, each a slice or a collective over one axis."""

from collections.abc import Sequence
from enum import Enum
from math import prod
from typing import NamedTuple

from .meshes import Mesh
from .sharding import Sharding, Split, replaced


class Move(Enum):
    """`SWAP` moves a split from one dimension to another: an all-to-all. `SLICE` sends nothing."""

    GATHER = "all_gather"
    SWAP = "all_to_all"
    SLICE = "shard"


class Step(NamedTuple):
    """One step. `dim`: where the split goes (or comes, for `SLICE`); `to`: where it comes, for
    `SWAP`; `before`, `after`: the shardings around it."""

    move: Move
    split: Split
    dim: int
    to: int
    before: Sharding
    after: Sharding


def steps(have: Sharding, want: Sharding) -> list[Step]:
    """First the splits go that `want` lacks, the last of a dimension first; then come the new
    ones. A split that another dimension wants next goes there at once."""
    found: list[Step] = []
    for dim, wanted in enumerate(want):
        while have[dim] != wanted[: len(have[dim])]:
            split = have[dim][-1]
            after = replaced(have, dim, have[dim][:-1])
            to = _wanted_next(after, want, split, dim)
            move = Move.GATHER if to < 0 else Move.SWAP
            if to >= 0:
                after = replaced(after, to, (*after[to], Split(split.axis)))
            found.append(Step(move, split, dim, to, have, after))
            have = after
    for dim, wanted in enumerate(want):
        for split in wanted[len(have[dim]) :]:
            after = replaced(have, dim, (*have[dim], split))
            found.append(Step(Move.SLICE, split, dim, dim, have, after))
            have = after
    return found


def _wanted_next(have: Sharding, want: Sharding, split: Split, dim: int) -> int:
    """The dimension that wants the axis of a split next, not in blocks; -1: there is none."""
    for to, splits in enumerate(want):
        if to != dim and splits[: len(have[to]) + 1] == (*have[to], Split(split.axis)):
            return to
    return -1


def bytes_sent(step: Step, shape: Sequence[int], item: int, mesh: Mesh) -> float:
    """Bytes that a rank sends. A gather sends the shard to each of the others."""
    if step.move is Move.SLICE:
        return 0.0
    local = prod(mesh.local_shape(shape, step.before)) * item
    parts = mesh.sizes[step.split.axis]
    return float(local * (parts - 1) if step.move is Move.GATHER else local * (parts - 1) / parts)
