"""Error feedback: what was given up comes back in the next operation of that name (P4).

Sparse: only given-up segments are kept, as the bytes that were sent; of an operation with a
codec all that it left over of a part, since nearly every value was rounded. A residual is
the sender's own gradient, so adding it to the next one at the same position conserves
it: delivered + residual = produced (exactly for float32 and wider up to the rounding of
that one addition; 16-bit floats round to 16 bits). A gradient may carry a loss scale that
changes from step to step: a hole keeps its own, and comes back in the present one.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from dlcpd.core.wire.bitmap import Segments
from dlcpd.core.wire.datagram import Bytes
from dlcpd.numerics.elements import COMPLEX, NARROW, narrow, view, widen

MAX_NAMES: Final = 4096  # buckets of one session: far above any model's bucket count

Key = tuple[str, str, int]  # name, dtype, elements: another shape is another tensor


@dataclass(frozen=True, slots=True)
class Hole:
    """Given-up segments of one chunk: `values` holds them back to back."""

    start: int  # byte offset of the chunk in the tensor
    segments: Segments
    segment_size: int
    values: Bytes
    scale: float = 1.0  # loss scale that the values carry
    source: int = 0  # ticket of the operation that gave them up
    coded: int | None = None  # of what a codec left over: segments on the wire that are in it

    @property
    def given_up(self) -> int:
        """Segments."""
        return len(self.segments) if self.coded is None else self.coded

    def spans(self, size: int) -> list[tuple[int, int, int]]:
        """(offset in tensor, offset in values, bytes) of each segment; the tail may be short."""
        out, at = [], 0
        for segment in self.segments.tolist():
            low = self.start + segment * self.segment_size
            length = min(self.segment_size, size - low, len(self.values) - at)
            out.append((low, at, length))
            at += length
        return out


def cut(
    chunk: Bytes, start: int, segments: Segments, segment_size: int,
    *, scale: float = 1.0, source: int = 0,
) -> Hole:  # fmt: skip
    """Copy `segments` of `chunk`, which begins at byte `start` of a tensor of that loss scale."""
    parts = [chunk[s * segment_size : (s + 1) * segment_size] for s in segments.tolist()]
    return Hole(start, segments, segment_size, np.concatenate(parts), scale, source)


class Account(Protocol):
    """Where bytes are counted that are kept."""

    def take(self, size: int) -> None: ...
    def give(self, size: int) -> None: ...


@dataclass(slots=True)
class ResidualStore:
    """Holes by tensor. Bounded: the name unused for longest is evicted and counted; whoever
    submits sees to it that there is room for the bytes."""

    account: Account | None = None
    evicted: int = 0  # holes lost to the bound; 0 in any sane use
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
        """All that `other` keeps is kept here, and there no more."""
        for key in list(other):
            self.put(key, other.take(key))

    def __iter__(self) -> Iterator[Key]:
        """Names that have any, the longest unused first."""
        return iter(self._holes)

    def holes(self) -> Iterator[Hole]:
        """All holes, those of one name in their order."""
        return (hole for holes in self._holes.values() for hole in holes)

    def __contains__(self, key: Key) -> bool:
        """Whether a name has any."""
        return key in self._holes

    def __len__(self) -> int:
        """Names that have any."""
        return len(self._holes)

    @property
    def size(self) -> int:
        """Bytes kept."""
        return _bytes_of(self.holes())


def _bytes_of(holes: Iterable[Hole]) -> int:
    return sum(len(hole.values) for hole in holes)


def add_back(tensor: Bytes, holes: list[Hole], dtype: str, scale: float = 1.0) -> int:
    """Add `holes` to `tensor`, which has the loss scale `scale`, where they came from.

    Returns segments added. Overflow and NaN follow IEEE 754 and never warn: the loss scaler
    looks at the result.
    """
    with np.errstate(all="ignore"):
        for hole in holes:
            factor = scale / hole.scale
            for low, at, length in hole.spans(len(tensor)):
                _add(tensor[low : low + length], hole.values[at : at + length], dtype, factor)
    return sum(hole.given_up for hole in holes)


def add_values(tensor: Bytes, values: Bytes, dtype: str) -> None:
    """tensor += values."""
    with np.errstate(all="ignore"):
        _add(tensor, values, dtype, 1.0)


def multiply_values(tensor: Bytes, dtype: str, factor: int) -> None:
    """tensor *= factor."""
    with np.errstate(all="ignore"):
        numbers = widen(view(tensor, dtype), dtype)
        view(tensor, dtype)[:] = narrow(numbers * np.float32(factor), dtype)


def _add(tensor: Bytes, values: Bytes, dtype: str, factor: float) -> None:
    dtype = COMPLEX.get(dtype, dtype)  # both parts of a number scale and add by themselves
    target, value = view(tensor, dtype), view(values, dtype)
    if dtype in NARROW:
        value = widen(value, dtype)
    if factor != 1.0:  # never for integers, which carry no scale; float64 where float32 ends
        value = (value.astype(np.float64) * factor).astype(value.dtype)
    if dtype in NARROW:
        target[:] = narrow(widen(target, dtype) + value, dtype)
    else:
        target += value
