"""Forest: spanning trees of the ranks, each of which carries a share of a tensor."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from dlcpd.schedules.draft import LONGEST
from dlcpd.schedules.layout import ALIGNMENT

UNIT: Final = 4096  # shares of a forest add up to this
ROOT: Final = -1  # the parent of a tree's root
# Rows: the builder writes the results of a row after the contributions of the next one.
LEAST_AHEAD: Final = 2


class BadForest(ValueError):
    """A forest is not valid, or does not suit a collective; the text names tree and reason."""


@dataclass(frozen=True)
class Tree:
    """A spanning tree of the ranks. Raises: BadForest."""

    share: int  # of the tensor, in 1/UNIT
    parents: tuple[int, ...]  # of each rank; ROOT for one rank

    def __post_init__(self) -> None:
        if not 0 < self.share <= UNIT:
            raise BadForest(f"a share of {self.share}: it must be 1 to {UNIT}")
        if self.parents.count(ROOT) != 1:
            raise BadForest(f"{self.parents.count(ROOT)} ranks have no parent: one must have none")
        world = len(self.parents)
        for rank, parent in enumerate(self.parents):
            if not ROOT <= parent < world:
                raise BadForest(f"rank {rank} has parent {parent}, of {world} ranks")
        for rank in range(world):
            at, hops = rank, 0
            while at != ROOT and hops < world:
                at, hops = self.parents[at], hops + 1
            if at != ROOT:
                raise BadForest(f"rank {rank} does not reach the root: its parents form a circle")

    @property
    def root(self) -> int:
        return self.parents.index(ROOT)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Children of each rank, the next rank first: not all send to one receiver at once."""
        world = len(self.parents)
        found: list[list[int]] = [[] for _ in self.parents]
        for child, parent in enumerate(self.parents):
            if parent != ROOT:
                found[parent].append(child)
        return tuple(
            tuple(sorted(ranks, key=lambda child: (child - rank) % world))
            for rank, ranks in enumerate(found)
        )

    @property
    def one_hop(self) -> bool:
        """Whether every rank but the root is a child of the root."""
        return len(self.children[self.root]) == len(self.parents) - 1


@dataclass(frozen=True)
class Forest:
    """Trees over the same ranks, whose shares add up to UNIT. Raises: BadForest."""

    trees: tuple[Tree, ...]
    chunk_bytes: int  # of the tree with the largest share; a multiple of ALIGNMENT
    # Rows by which contributions to an all-reduce may be ahead of its results; 0: no limit
    ahead: int = 0
    world: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if not self.trees:
            raise BadForest("a forest needs at least one tree")
        object.__setattr__(self, "world", len(self.trees[0].parents))
        for number, tree in enumerate(self.trees):
            if len(tree.parents) != self.world:
                why = f"tree {number} has {len(tree.parents)} ranks, tree 0 has {self.world}"
                raise BadForest(why)
        total = sum(tree.share for tree in self.trees)
        if total != UNIT:
            raise BadForest(f"shares add up to {total}, not {UNIT}")
        if self.ahead and self.ahead < LEAST_AHEAD:
            raise BadForest(f"{self.ahead} rows ahead: {LEAST_AHEAD} or more, or 0 for any number")
        if not 0 < self.chunk_bytes <= LONGEST or self.chunk_bytes % ALIGNMENT:
            raise BadForest(
                f"chunks of {self.chunk_bytes} B: a multiple of {ALIGNMENT} up to {LONGEST}"
            )


def weights(trees: tuple[Tree, ...]) -> tuple[int, ...]:
    """Weight of each tree. Shares that differ by 1 are equal: UNIT / n need not be an integer."""
    given = tuple(tree.share for tree in trees)
    return (1,) * len(given) if max(given) - min(given) <= 1 else given


def split(size: int, weight: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """(start, size) of the part of each weight, in bytes.

    Parts are rounded up to ALIGNMENT, and the last ones are shorter or empty, as in `layout`.
    """
    total, start, out = sum(weight), 0, []
    for one in weight:
        part = min(-(-size * one // total // ALIGNMENT) * ALIGNMENT, size - start)
        out.append((start, part))
        start += part
    return tuple(out)
