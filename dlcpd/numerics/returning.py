"""Adds residuals to the next gradient, as far as they fit; the rest is kept for the one after it.

The sum is computed in float32 or wider. Its remainder is the digits that a 16-bit float rounds
away, and the excess beyond the range. So finite values stay finite, and conservation is exact
except for the rounding of one addition in float32 (float64 for float64).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from dlcpd.core.wire.bitmap import Segments
from dlcpd.core.wire.datagram import Bytes
from dlcpd.numerics.elements import COMPLEX, LARGEST, NARROW, Array, narrow, view, wide, widen
from dlcpd.numerics.residual import WHOLE, Hole

BLOCK: Final = 1 << 15  # elements processed at once: temporaries stay in a second-level cache
_BEYOND_FLOAT32: Final = 127  # exponent by frexp above which a remainder is halved to fit float32


class _Part(NamedTuple):
    """Values to be added from element `first` of the tensor on, times `factor`."""

    first: int
    values: Array
    factor: float


def share_of_range(dtype: str, op: str, ranks: int) -> float:
    """The magnitude up to which a residual may raise a contribution. Beyond 1/n of the range it
    could make a sum of n ranks overflow; an average always fits."""
    largest = LARGEST[COMPLEX.get(dtype, dtype)]
    return largest / ranks if op == "sum" else largest


def add_back(
    tensor: Bytes,
    holes: Sequence[Hole],
    dtype: str,
    scale: float = 1.0,
    *,
    source: int = 0,
    most: float | None = None,
) -> list[Hole]:
    """Add `holes` to `tensor`, which has the loss scale `scale`, at their places.

    No magnitude is raised above `most`, by default the largest of `dtype`. Returns the remainder
    as holes of `source` that do not overlap. NaN and infinite elements are not changed, and
    their residual remains. `dtype` is a float or complex type.
    """
    if not holes:
        return []
    dtype = COMPLEX.get(dtype, dtype)
    addition = _Addition(dtype, scale, source, LARGEST[dtype] if most is None else most)
    numbers = view(tensor, dtype)
    careful: list[_Part] = []
    with np.errstate(all="ignore"):
        for hole in holes:
            if dtype in NARROW:
                careful += addition.parts(hole, numbers)
            else:
                careful += addition.add(hole, numbers)
        return addition.add_carefully(careful, numbers)


@dataclass(frozen=True, slots=True)
class _Addition:
    dtype: str
    scale: float
    source: int
    most: float

    def parts(self, hole: Hole, numbers: Array) -> Iterator[_Part]:
        """The parts of a hole: runs of neighbouring segments."""
        first, per, segments = self._place(hole, numbers)
        factor, at = self.scale / hole.scale, 0
        breaks = np.flatnonzero(np.diff(segments) != 1) + 1
        for run in np.split(segments, breaks):
            values = hole.values[at * per : (at + len(run)) * per]
            yield _Part(first + int(run[0]) * per, values, factor)
            at += len(run)

    def add(self, hole: Hole, numbers: Array) -> Iterator[_Part]:
        """Add the segments whose sums fit, with the rounding of this type; yield the others."""
        first, per, segments = self._place(hole, numbers)
        values, factor = hole.values, self.scale / hole.scale
        whole, batch = len(values) // per, max(BLOCK // per, 1)  # the last segment may be short
        for low in range(0, whole, batch):
            chosen = segments[low : min(low + batch, whole)]
            rows = numbers[first : first + (int(chosen[-1]) + 1) * per].reshape(-1, per)
            more = values[low * per : (low + len(chosen)) * per].reshape(-1, per)
            total = rows[chosen]
            total += _times(more, factor)
            if self._fits(total):
                rows[chosen] = total
                continue
            fits = (np.abs(total) <= self.most).all(axis=1)
            rows[chosen[fits]] = total[fits]
            for at in np.flatnonzero(~fits).tolist():
                yield _Part(first + int(chosen[at]) * per, more[at], factor)
        if whole < len(segments):
            short, at = values[whole * per :], first + int(segments[whole]) * per
            total = numbers[at : at + len(short)] + _times(short, factor)
            if self._fits(total):
                numbers[at : at + len(short)] = total
            else:
                yield _Part(at, short, factor)

    def add_carefully(self, parts: Sequence[_Part], numbers: Array) -> list[Hole]:
        """Block by block: all values of one place are added up before the sum is rounded."""
        blocks = defaultdict[int, list[_Part]](list)
        for first, values, factor in parts:
            at = 0
            while at < len(values):
                block = (first + at) // BLOCK
                stop = min((block + 1) * BLOCK - first, len(values))
                blocks[block].append(_Part(first + at, values[at:stop], factor))
                at = stop
        rest = (self._add_block(blocks[block], numbers) for block in sorted(blocks))
        return [hole for hole in rest if hole.values.any()]

    def _add_block(self, parts: Sequence[_Part], numbers: Array) -> Hole:
        low = min(part.first for part in parts)
        here = numbers[low : max(part.first + len(part.values) for part in parts)]
        given = widen(here, self.dtype)
        found = self._rounded(given, here, parts, low) if self.dtype in NARROW else None
        rest, halvings = found or self._clipped(given, here, parts, low)
        return Hole(
            low * here.itemsize, WHOLE, here.nbytes, rest, self.scale * 2.0**-halvings, self.source
        )

    def _rounded(
        self, given: Array, here: Array, parts: Sequence[_Part], low: int
    ) -> tuple[Array, int] | None:
        """The usual case of a 16-bit float: only digits remain. None: a sum does not fit."""
        pile = np.zeros(len(here), np.float32)
        for first, values, factor in parts:
            pile[first - low : first - low + len(values)] += _times(values, factor)
        pile += given
        if not self._fits(pile):
            return None
        here[:] = narrow(pile, self.dtype)
        pile -= widen(here, self.dtype)
        return pile, 0

    def _clipped(
        self, given: Array, here: Array, parts: Sequence[_Part], low: int
    ) -> tuple[Array, int]:
        """Sum in float64, halved so often that nothing overflows, and clip to `most`. Returns the
        remainder and its number of halvings."""
        largest = max(part.factor for part in parts)
        halvings = 0
        if self.dtype == "float64":
            halvings = 1 + max(int(np.frexp(largest)[1]), 0) + len(parts).bit_length()
        down = 2.0**-halvings
        before, pile = given.astype(np.float64) * down, np.zeros(len(here))
        for first, values, factor in parts:
            pile[first - low : first - low + len(values)] += values * (np.float64(factor) * down)
        total = before + pile
        top = np.maximum(self.most * down, np.abs(before))  # values beyond `most` stay
        number, fits = np.isfinite(before), np.abs(total) <= top
        after = np.clip(total, -top, top) / down
        kind = wide(self.dtype)
        here[number] = narrow(after.astype(kind), self.dtype)[number]
        rest = total - widen(here, self.dtype) * down
        if self.dtype not in NARROW:
            rest[fits] = 0  # rounded, as all sums of this type
        rest = np.where(number, rest, pile)
        if kind == np.float32:
            more = max(int(np.frexp(np.abs(rest).max())[1]) - _BEYOND_FLOAT32, 0)
            rest, halvings = rest * 2.0**-more, halvings + more
        return rest.astype(kind), halvings

    def _place(self, hole: Hole, numbers: Array) -> tuple[int, int, Segments]:
        """First element, elements of a segment, and the segments; a single long segment is split
        into segments of BLOCK elements."""
        item, segments = numbers.itemsize, hole.segments
        per = hole.segment_size // item
        if per > BLOCK and len(segments) == 1:
            first = hole.start // item + int(segments[0]) * per
            return first, BLOCK, np.arange(-(-len(hole.values) // BLOCK))
        return hole.start // item, per, segments

    def _fits(self, total: Array) -> bool:
        """Whether no value is beyond `most`, NaN or infinite."""
        return bool(total.max() <= self.most and total.min() >= -self.most)


def _times(values: Array, factor: float) -> Array:
    if factor == 1.0:
        return values
    if float(np.float32(factor)) == factor:  # a product of two float32 is rounded once either way
        product: Array = values * values.dtype.type(factor)
        return product
    return (values * np.float64(factor)).astype(values.dtype)
