"""A mesh: the ranks of a job in rows along named axes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Final

from dlcpd.contract.errors import BadConfig

from .sharding import Sharding, Split, Splits

MAX_AXES: Final = 8  # a choice of axes per operation is enumerated, see `choice`


@dataclass(frozen=True, slots=True)
class Mesh:
    """Sizes of the axes by name. Ranks lie row by row: neighbours along the last axis have
    consecutive ranks.

    Raises: BadConfig naming the axis.
    """

    sizes: Mapping[str, int]

    def __post_init__(self) -> None:
        if not 1 <= len(self.sizes) <= MAX_AXES:
            raise BadConfig(f"a mesh has 1 to {MAX_AXES} axes, not {len(self.sizes)}: name others")
        for name, size in self.sizes.items():
            if type(size) is not int or size < 1:
                raise BadConfig(f"axis {name!r} has size {size!r}: use a whole number, 1 or more")
        object.__setattr__(self, "sizes", MappingProxyType(dict(self.sizes)))

    def __reduce__(self) -> tuple[type["Mesh"], tuple[dict[str, int]]]:
        """A model that has a mesh can be copied and saved."""
        return Mesh, (dict(self.sizes),)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the axes."""
        return tuple(self.sizes)

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return prod(self.sizes.values())

    def parts(self, splits: Iterable[Split]) -> int:
        """Number of shards of a dimension."""
        return prod(self.sizes[split.axis] for split in splits)

    def coordinates(self, rank: int) -> dict[str, int]:
        """Index of a rank along each axis."""
        found = {}
        for name in reversed(self.names):
            rank, found[name] = divmod(rank, self.sizes[name])
        return {name: found[name] for name in self.names}

    def members(self, rank: int, axis: str) -> list[int]:
        """The ranks that differ from `rank` along one axis only, itself included, in order."""
        after = list(self.sizes.values())[self.names.index(axis) + 1 :]
        step = prod(after)
        first = rank - self.coordinates(rank)[axis] * step
        return [first + index * step for index in range(self.sizes[axis])]

    def local_size(self, size: int, splits: Splits) -> int:
        """Rows of a shard, padding included."""
        for split in splits:
            size = -(-size // self.sizes[split.axis])  # with `outer` above 1 the cut is even
        return size

    def local_shape(self, shape: Sequence[int], sharding: Sharding) -> tuple[int, ...]:
        """Shape of a shard of a tensor of this shape, with its padding."""
        return tuple(map(self.local_size, shape, sharding))

    def rows_held(self, size: int, splits: Splits, at: Mapping[str, int]) -> int:
        """Rows of a shard that are not padding, at the coordinates `at`."""
        held = size
        for split in splits:
            size = -(-size // self.sizes[split.axis])
            held = min(max(held - at[split.axis] * size, 0), size)
        return held

    def __str__(self) -> str:
        return " x ".join(f"{name}={size}" for name, size in self.sizes.items())


def mesh(**sizes: int) -> Mesh:
    """A mesh of the default group: `mesh(data=2, model=2)`.

    Raises: BadConfig naming the axis.
    """
    return Mesh(sizes)
