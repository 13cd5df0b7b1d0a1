"""Energy of the segments of a gradient, and the drop precedences that follow from it.

Energy is the sum of squares: the energy of lost segments measures the error of the update.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.contract.traffic import PROTECTED
from dlcpd.core.transfer.budget import Budget
from dlcpd.core.transfer.packetizer import segment_count
from dlcpd.core.transfer.permit import MOST_COST, MOST_LIMIT, MUST_ARRIVE
from dlcpd.core.wire.bitmap import Segments
from dlcpd.core.wire.datagram import Bytes
from dlcpd.numerics.elements import COMPLEX, INTEGERS, view, widen

Energies = NDArray[np.float64]

THIRDS: Final = 3  # light, medium and heavy segments
COSTS: Final = 16  # the mean cost of a segment; costs are rounded up
NO_HEADS: Final[Mapping[int, int]] = {}
LIGHT, MEDIUM = 2, 1  # drop precedences: the lightest are dropped first, the heavy ones protected


def energies(chunk: Bytes, dtype: str, segment_size: int) -> Energies:
    """Sum of squares of each segment of `chunk`; the last may be shorter. One pass.

    Of complex numbers both parts count. Integers and bool have infinite energy: all must arrive.
    NaN and Inf give infinity: they must arrive (loss scalers look for them), as must values
    beyond 1e154, whose squares overflow float64.
    """
    count = segment_count(len(chunk), segment_size)
    if dtype in INTEGERS or dtype == "bool":
        return np.full(count, np.inf)
    dtype = COMPLEX.get(dtype, dtype)
    whole = len(chunk) // segment_size
    out = np.empty(count)
    with np.errstate(all="ignore"):
        numbers = widen(view(chunk, dtype), dtype)
        per_segment = segment_size // view(chunk[:0], dtype).itemsize
        grid = numbers[: whole * per_segment].reshape(whole, per_segment)
        out[:whole] = np.einsum("ij,ij->i", grid, grid)
        if whole < count:
            rest = numbers[whole * per_segment :]
            out[whole] = np.dot(rest, rest)
        for segment in np.flatnonzero(~np.isfinite(out)).tolist():  # float32 ends at 1.8e19 squared
            part = numbers[segment * per_segment : (segment + 1) * per_segment].astype(np.float64)
            out[segment] = np.dot(part, part)
    out[~np.isfinite(out)] = np.inf
    return out


def drop_precedences(energy: Energies, budget: Budget, order: Segments) -> NDArray[np.uint8]:
    """Drop precedence of each segment of a chunk. The light ones are as many of each part as its
    budget lets be missing, the medium ones as many more; neither are more than a third of the part.
    Of equal energies, the first in `order` are the lightest: no position always is (P5).

    So all light segments may be dropped and none needs a retransmission, which would cost more than
    the drop saves.
    """
    ranks = np.full(len(energy), PROTECTED, np.uint8)
    may = ~budget.untouchable & np.isfinite(energy)
    for part, allowed in enumerate(budget.allowed.tolist()):
        rows = order[(may & (budget.part == part))[order]]
        count = min(allowed, len(rows) // THIRDS)
        if count:
            ordered = rows[np.argsort(energy[rows], kind="stable")[: 2 * count]]
            ranks[ordered[:count]], ranks[ordered[count:]] = LIGHT, MEDIUM
    return ranks


class OperationEnergy:
    """Energies of an operation's segments, by chunk.

    `heads`: by chunk, the number of segments at its beginning that hold a codec's head; the total
    does not count them.
    """

    def __init__(self, by_chunk: dict[int, Energies], heads: Mapping[int, int] = NO_HEADS) -> None:
        self._by_chunk = by_chunk
        counted = (energy[heads.get(chunk, 0) :].sum() for chunk, energy in by_chunk.items())
        self.total = float(sum(counted))  # infinite with NaN or Inf
        self.spent = 0.0  # energy waived so far
        # By chunk, energy that its peer waived or may waive under a permit. It only grows: what was
        # refused once is refused again, however late it is asked for.
        self._reserved = dict[int, float]()
        self._waived = set[int]()  # chunks of which segments were waived
        self._heads = heads

    def of(self, chunk: int) -> Energies:
        """Energy of each segment of a chunk."""
        return self._by_chunk[chunk]

    def costs(self, chunk: int, bound: float) -> tuple[int, NDArray[np.uint8]]:
        """A limit, and the cost of each segment of a chunk: those whose costs are within the limit
        hold at most `bound` of the chunk's energy, so those of all chunks at most `bound` of the
        operation's. Segments of infinite energy must arrive, as must those far above the mean.

        From now on, that energy counts as reserved for the chunk.
        """
        energy = self._by_chunk[chunk]
        if not np.isfinite(self.total):
            return 0, np.where(np.isfinite(energy), 0, MUST_ARRIVE).astype(np.uint8)
        counted = energy[self._heads.get(chunk, 0) :]
        total = float(counted.sum())
        self._reserved[chunk] = bound * total
        limit = min(int(bound * COSTS * len(counted)), MOST_LIMIT)
        if not total:
            return limit, np.zeros(len(energy), np.uint8)
        cost = np.ceil(energy * (COSTS * len(counted) / total))
        cost[~(cost <= MOST_COST)] = MUST_ARRIVE
        return limit, cost.astype(np.uint8)

    def beyond(self, chunk: int, segments: Segments, weight: Energies, bound: float) -> Segments:
        """Those of `segments` of a chunk that must not be waived: infinite ones, and the heaviest,
        as far as they would raise the operation's waived energy, with all that other chunks
        reserve, above `bound` of its energy."""
        heavy = weight[segments]
        by_weight = np.argsort(heavy, kind="stable")
        own = 0.0 if chunk in self._waived else self._reserved.get(chunk, 0.0)
        others = sum(self._reserved.values()) - own
        total = others + np.cumsum(heavy[by_weight])
        allowed = bound * self.total
        fits = (
            int(np.searchsorted(total, allowed, side="right"))
            if np.isfinite(allowed)
            else (int(np.isfinite(heavy).sum()))
        )
        return np.sort(segments[by_weight[fits:]])

    def spend(self, chunk: int, weight: Energies) -> None:
        """Count the energies `weight` of the waived segments of a chunk."""
        energy = float(weight.sum())
        self.spent += energy
        self._waived.add(chunk)
        self._reserved[chunk] = max(self._reserved.get(chunk, 0.0), energy)

    @property
    def spent_share(self) -> float:
        """Fraction of the contribution's energy that was waived; 0 where it is infinite."""
        total = self.total
        return self.spent / total if 0 < total < np.inf else 0.0
