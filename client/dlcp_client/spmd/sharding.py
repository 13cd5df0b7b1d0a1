"""Shardings: which mesh axes divide each dimension of a tensor.

A dimension has a tuple of splits, applied in order. A split cuts a dimension of n rows into shards
of ceil(n / p) rows, the last of which may be padded. `outer` above 1 is a split of the minor part
of a flattened dimension: the rows are `outer` blocks, and each block is cut. Such a split is even.
"""

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias


class Split(NamedTuple):
    """One mesh axis that divides a dimension."""

    axis: str
    outer: int = 1

    def __str__(self) -> str:
        return self.axis if self.outer == 1 else f"{self.axis}/{self.outer}"


Splits: TypeAlias = tuple[Split, ...]
Sharding: TypeAlias = tuple[Splits, ...]


def whole(dims: int) -> Sharding:
    """The sharding of a tensor that every rank holds as a whole."""
    return ((),) * dims


def axes_of(splits: Iterable[Split]) -> tuple[str, ...]:
    """The axes of one dimension."""
    return tuple(split.axis for split in splits)


def axes_in(sharding: Iterable[Splits]) -> tuple[str, ...]:
    """The axes of all dimensions."""
    return tuple(split.axis for splits in sharding for split in splits)


def replaced(sharding: Sharding, dim: int, splits: Splits) -> Sharding:
    """The same but for one dimension."""
    return (*sharding[:dim], splits, *sharding[dim + 1 :])


def text_of(sharding: Sharding) -> str:
    """`(data, -, model+expert)`: a dash is a dimension that is whole."""
    dims = ["+".join(map(str, splits)) or "-" for splits in sharding]
    return f"({', '.join(dims)})"
