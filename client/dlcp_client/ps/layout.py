"""The assignment of tensors to shards, and the layout of a shard."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from dlcpd.contract.errors import BadConfig, BadMessage

# float32 elements per operation, 16 MiB: four chunks of 4 MiB are enough to overlap. A shard of
# 2^31 elements is then 512 operations, the most that a session holds.
PIECE: Final = 4 << 20
MAX_ELEMENTS: Final = 512 * PIECE  # of a shard
MAX_TENSORS: Final = 1 << 16  # of a shard: rows of 1.5 MB
COLUMNS: Final = 3  # of a row: elements, parameter group, whether it is exempt

Range = tuple[int, int]  # [start, stop) in elements of the shard


@dataclass(frozen=True, slots=True)
class ShardTensor:
    """A tensor of a shard. `group`: index of its parameter group; `exempt`: never waived."""

    size: int  # elements
    group: int
    exempt: bool = False


@dataclass(frozen=True)
class ShardLayout:
    """The tensors of a shard, back to back in this order."""

    tensors: tuple[ShardTensor, ...]

    @cached_property
    def ranges(self) -> tuple[Range, ...]:
        """The elements of each tensor."""
        ends = np.cumsum([tensor.size for tensor in self.tensors], dtype=np.int64).tolist()
        return tuple(zip([0, *ends[:-1]], ends, strict=True)) if ends else ()

    @property
    def size(self) -> int:
        """Number of elements."""
        return sum(tensor.size for tensor in self.tensors)

    @cached_property
    def pieces(self) -> tuple[Range, ...]:
        """The elements of each operation."""
        return tuple((at, min(at + PIECE, self.size)) for at in range(0, self.size, PIECE))

    def exempt(self, piece: Range) -> list[Range]:
        """The exempt bytes [start, stop) of a piece, relative to it."""
        start, stop = piece
        return [
            (4 * (max(low, start) - start), 4 * (min(high, stop) - start))
            for (low, high), tensor in zip(self.ranges, self.tensors, strict=True)
            if tensor.exempt and low < stop and high > start
        ]

    @cached_property
    def runs(self) -> tuple[tuple[Range, int], ...]:
        """Ranges of adjacent tensors of one group, with the group."""
        found: list[tuple[Range, int]] = []
        for (low, high), tensor in zip(self.ranges, self.tensors, strict=True):
            if found and found[-1][1] == tensor.group:
                low = found.pop()[0][0]  # noqa: PLW2901  # the new range begins where the run did
            found.append(((low, high), tensor.group))
        return tuple(found)

    def rows(self) -> NDArray[np.int64]:
        """The message form: COLUMNS numbers for each tensor."""
        rows = [(one.size, one.group, int(one.exempt)) for one in self.tensors]
        return np.array(rows, np.int64).reshape(len(rows), COLUMNS)

    @classmethod
    def of(cls, rows: NDArray[np.int64], *, size: int, groups: int) -> Self:
        """The layout in `rows` of a peer, which announced `size` elements and `groups` groups.

        Raises: BadMessage.
        """
        tensors = tuple(ShardTensor(int(n), int(g), bool(c)) for n, g, c in rows.tolist())
        layout = cls(tensors)
        sane = all(one.size >= 0 and 0 <= one.group < groups for one in tensors)
        if not sane or layout.size != size:
            raise BadMessage(
                f"a worker sent a layout of {layout.size} elements, and had announced {size}"
            )
        return layout


def shard_of(sizes: Sequence[int], shards: int) -> list[int]:
    """The shard of each tensor, by number of elements; all workers get the same result.

    The largest first, each to the shard that has least. A tensor is never divided, because LAMB
    needs its norm. So shards differ by at most the largest tensor.

    Raises: BadConfig if a shard would be empty or too large.
    """
    filled, chosen = [0] * shards, [0] * len(sizes)
    for index in sorted(range(len(sizes)), key=lambda at: (-sizes[at], at)):
        shard = min(range(shards), key=lambda at: (filled[at], at))
        chosen[index] = shard
        filled[shard] += sizes[index]
    if not all(filled):
        raise BadConfig(
            f"{len(sizes)} tensors cannot fill {shards} shards: start the server with fewer shards"
        )
    if max(filled) > MAX_ELEMENTS:
        raise BadConfig(
            f"a shard would have {max(filled)} elements, and the limit is {MAX_ELEMENTS}: "
            "start the server with more shards"
        )
    return chosen
