"""Which tensors lie on which shard, and what a shard knows of each: plain numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from dlcpd.contract.errors import BadConfig, BadMessage

# float32 elements that travel as one operation, 16 MiB: four chunks of 4 MiB, which is enough to
# overlap them, and a shard of 2^31 elements is 512 operations, the most that a session holds.
PIECE: Final = 4 << 20
MAX_ELEMENTS: Final = 512 * PIECE  # of a shard
MAX_TENSORS: Final = 1 << 16  # of a shard: rows of 1.5 MB
COLUMNS: Final = 3  # of a row: elements, parameter group, whether it is exempt

Range = tuple[int, int]  # [start, stop) in elements of the shard


@dataclass(frozen=True, slots=True)
class Tensor:
    """`group` counts parameter groups; an `exempt` tensor never loses a segment."""

    size: int  # elements
    group: int
    exempt: bool = False


@dataclass(frozen=True)
class Layout:
    """The tensors of a shard, back to back in this order."""

    tensors: tuple[Tensor, ...]

    @cached_property
    def ranges(self) -> tuple[Range, ...]:
        """By tensor."""
        ends = np.cumsum([tensor.size for tensor in self.tensors], dtype=np.int64).tolist()
        return tuple(zip([0, *ends[:-1]], ends, strict=True)) if ends else ()

    @property
    def size(self) -> int:
        """Elements."""
        return sum(tensor.size for tensor in self.tensors)

    @cached_property
    def pieces(self) -> tuple[Range, ...]:
        """What travels as one operation each."""
        return tuple((at, min(at + PIECE, self.size)) for at in range(0, self.size, PIECE))

    def exempt(self, piece: Range) -> list[Range]:
        """Of a piece: [start, stop) in bytes of it that are never waived."""
        start, stop = piece
        return [
            (4 * (max(low, start) - start), 4 * (min(high, stop) - start))
            for (low, high), tensor in zip(self.ranges, self.tensors, strict=True)
            if tensor.exempt and low < stop and high > start
        ]

    @cached_property
    def runs(self) -> tuple[tuple[Range, int], ...]:
        """Neighbouring tensors of one group as one range, with the group."""
        found: list[tuple[Range, int]] = []
        for (low, high), tensor in zip(self.ranges, self.tensors, strict=True):
            if found and found[-1][1] == tensor.group:
                low = found.pop()[0][0]  # noqa: PLW2901  # it begins where the run did
            found.append(((low, high), tensor.group))
        return tuple(found)

    def rows(self) -> NDArray[np.int64]:
        """As they travel: COLUMNS numbers for each tensor."""
        rows = [(one.size, one.group, int(one.exempt)) for one in self.tensors]
        return np.array(rows, np.int64).reshape(len(rows), COLUMNS)

    @classmethod
    def of(cls, rows: NDArray[np.int64], *, size: int, groups: int) -> Self:
        """From `rows` that came from a peer, who promised `size` elements and so many `groups`.

        Raises: BadMessage.
        """
        tensors = tuple(Tensor(int(n), int(g), bool(c)) for n, g, c in rows.tolist())
        layout = cls(tensors)
        sane = all(one.size >= 0 and 0 <= one.group < groups for one in tensors)
        if not sane or layout.size != size:
            raise BadMessage(f"a layout of {layout.size} elements, where {size} were announced")
        return layout


def shard_of(sizes: Sequence[int], shards: int) -> list[int]:
    """The shard of each tensor of so many elements: all workers come to the same.

    The largest first, each to the shard that has least; a tensor is never divided, for LAMB looks
    at all of one. So shards differ by at most the largest tensor.

    Raises: BadConfig where a shard would get nothing, or too much.
    """
    filled, chosen = [0] * shards, [0] * len(sizes)
    for index in sorted(range(len(sizes)), key=lambda at: (-sizes[at], at)):
        shard = min(range(shards), key=lambda at: (filled[at], at))
        chosen[index] = shard
        filled[shard] += sizes[index]
    if not all(filled):
        raise BadConfig(
            f"{len(sizes)} tensors on {shards} shards: a shard would have nothing; start the "
            f"server with fewer shards"
        )
    if max(filled) > MAX_ELEMENTS:
        raise BadConfig(
            f"a shard would have {max(filled)} elements, at most {MAX_ELEMENTS}: start the server "
            f"with more shards"
        )
    return chosen
