"""Residuals of error feedback: waived values, kept for the next operation of the same name (P4).

Sparse: only waived segments are kept; with a codec the rounding errors of whole parts, since nearly
every value was rounded. Values are float32, or float64 for float64, the type in which they are
reapplied (dlcpd.numerics.returning). A gradient may carry a loss scale that changes from step to
step: a hole keeps its own, and is converted to the present one.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from dlcpd.core.wire.bitmap import Segments
from dlcpd.core.wire.datagram import Bytes
from dlcpd.numerics.elements import COMPLEX, Array, view, widen

MAX_NAMES: Final = 4096  # buckets of one session: far above any model's bucket count
WHOLE: Final = np.zeros(1, np.intp)  # segments of a hole that is in one piece

Key = tuple[str, str, int]  # name, dtype, elements: another shape is another tensor


@dataclass(frozen=True, slots=True)
class Hole:
    """Values that belong to some segments of a tensor, back to back; the last may be short."""

    start: int  # byte of the tensor at which its segments begin to count
    segments: Segments
    segment_size: int  # bytes of the tensor
    values: Array  # of the type `elements.wide`: of complex numbers their parts
    scale: float = 1.0  # loss scale that the values carry
    source: int = 0  # ticket of the operation that left them
    waived: int = 0  # segments on the wire that were waived, and not reapplied since
    coded: bool = False  # left over by a codec: in no ledger, and in memory that is reused


def cut(  # noqa: PLR0913  # two of them by keyword
    chunk: Bytes,
    start: int,
    segments: Segments,
    segment_size: int,
    dtype: str,
    *,
    scale: float = 1.0,
    source: int = 0,
) -> Hole:
    """Copy `segments` of `chunk`, from byte `start` on of a tensor of loss scale `scale`."""
    parts = [chunk[s * segment_size : (s + 1) * segment_size] for s in segments.tolist()]
    real = COMPLEX.get(dtype, dtype)
    values = widen(view(np.concatenate(parts), real), real)
    return Hole(start, segments, segment_size, values, scale, source, len(segments))


class Account(Protocol):
    """Counts the bytes that are kept."""

    def take(self, size: int) -> None: ...
    def give(self, size: int) -> None: ...


@dataclass(slots=True)
class ResidualStore:
    """Holes by tensor, of at most MAX_NAMES: the name unused for longest is evicted, and its holes
    counted. The caller checks beforehand that there is room for the bytes."""

    account: Account | None = None
    evicted: int = 0  # holes lost by eviction; 0 in normal use
    _holes: OrderedDict[Key, list[Hole]] = field(default_factory=OrderedDict)

    def put(self, key: Key, holes: list[Hole]) -> None:
        """Keep `holes` for the next operation of `key`."""
        if holes:
            self._holes.setdefault(key, []).extend(holes)
            self._holes.move_to_end(key)
            if self.account is not None:
                self.account.take(_bytes_of(holes))
        while len(self._holes) > MAX_NAMES:
            self.evicted += len(self.take(next(iter(self._holes))))

    def take(self, key: Key) -> list[Hole]:
        """Remove and return the holes of `key`."""
        holes = self._holes.pop(key, [])
        if holes and self.account is not None:
            self.account.give(_bytes_of(holes))
        return holes

    def take_over(self, other: "ResidualStore") -> None:
        """Move all holes of `other` here."""
        for key in list(other):
            self.put(key, other.take(key))

    def __iter__(self) -> Iterator[Key]:
        """Names that have holes, the longest unused first."""
        return iter(self._holes)

    def holes(self) -> Iterator[Hole]:
        """All holes, those of one name in their order."""
        return (hole for holes in self._holes.values() for hole in holes)

    def __contains__(self, key: Key) -> bool:
        """Whether a name has holes."""
        return key in self._holes

    def __len__(self) -> int:
        """Number of names that have holes."""
        return len(self._holes)

    @property
    def size(self) -> int:
        """Bytes kept."""
        return _bytes_of(self.holes())


def _bytes_of(holes: Iterable[Hole]) -> int:
    return sum(hole.values.nbytes for hole in holes)
