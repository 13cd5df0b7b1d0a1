"""Error feedback: what was given up comes back in the next operation of that name (P4).

Sparse: only given-up segments are kept, as the bytes that were sent. A residual is
the sender's own gradient, unscaled, so adding it to the next one at the same position
conserves it: delivered + residual = produced (exactly for float32 and wider up to the
rounding of that one addition; 16-bit floats round to 16 bits).
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from dlcpd.core.bitmap import Segments
from dlcpd.core.datagram import Bytes
from dlcpd.numerics.elements import NARROW, narrow, view, widen

MAX_NAMES: Final = 4096  # buckets of one session: far above any model's bucket count

Key = tuple[str, str, int]  # name, dtype, elements: another shape is another tensor


@dataclass(frozen=True, slots=True)
class Hole:
    """Given-up segments of one chunk: `values` holds them back to back."""

    start: int  # byte offset of the chunk in the tensor
    segments: Segments
    segment_size: int
    values: Bytes

    def spans(self, size: int) -> list[tuple[int, int, int]]:
        """(offset in tensor, offset in values, bytes) of each segment; the tail may be short."""
        out, at = [], 0
        for segment in self.segments.tolist():
            low = self.start + segment * self.segment_size
            length = min(self.segment_size, size - low, len(self.values) - at)
            out.append((low, at, length))
            at += length
        return out


def cut(chunk: Bytes, start: int, segments: Segments, segment_size: int) -> Hole:
    """Copy `segments` of `chunk`, which begins at byte `start` of its tensor."""
    parts = [chunk[s * segment_size : (s + 1) * segment_size] for s in segments.tolist()]
    return Hole(start, segments, segment_size, np.concatenate(parts))


@dataclass(slots=True)
class ResidualStore:
    """Holes by tensor. Bounded: the name unused for longest is evicted and counted."""

    evicted: int = 0  # holes lost to the bound; 0 in any sane use
    _holes: OrderedDict[Key, list[Hole]] = field(default_factory=OrderedDict)

    def put(self, key: Key, holes: list[Hole]) -> None:
        """Keep `holes` for the next operation of `key`."""
        if holes:
            self._holes.setdefault(key, []).extend(holes)
            self._holes.move_to_end(key)
        while len(self._holes) > MAX_NAMES:
            self.evicted += len(self._holes.popitem(last=False)[1])

    def take(self, key: Key) -> list[Hole]:
        """Remove and return the holes of `key`."""
        return self._holes.pop(key, [])

    @property
    def size(self) -> int:
        """Bytes kept."""
        return sum(len(h.values) for holes in self._holes.values() for h in holes)


def add_back(tensor: Bytes, holes: list[Hole], dtype: str) -> int:
    """Add `holes` to `tensor` where they came from; returns segments added.

    Overflow and NaN follow IEEE 754 and never warn: the loss scaler looks at the result.
    """
    with np.errstate(all="ignore"):
        for hole in holes:
            for low, at, length in hole.spans(len(tensor)):
                _add(tensor[low : low + length], hole.values[at : at + length], dtype)
    return sum(len(hole.segments) for hole in holes)


def _add(tensor: Bytes, values: Bytes, dtype: str) -> None:
    target, value = view(tensor, dtype), view(values, dtype)
    if dtype in NARROW:
        target[:] = narrow(widen(target, dtype) + widen(value, dtype), dtype)
    else:
        target += value
