"""The loss budget of a chunk, part by part (P3). Equal on both of its ends."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dlcpd.core.transfer.layers import MILLION
from dlcpd.core.wire.bitmap import Bits, Segments


@dataclass(frozen=True, slots=True, eq=False)
class Budget:
    """Segments of a chunk that one sender may be missing.

    `part[s]` is the part that segment s belongs to (a traffic class with a bound), and
    `allowed[p]` how many of part p may be missing. Segments in `exempt` never may.
    """

    part: NDArray[np.uint8]
    allowed: NDArray[np.intp]
    exempt: Bits

    @classmethod
    def new(cls, bounds: NDArray[np.int64], exempt: Bits | None) -> Self | None:
        """From each segment's key: its class and bound as `class << 32 | bound in millionths`.

        A part may miss floor(bound * its segments). None where nothing may.
        """
        if (bounds == bounds[0]).all():  # true of most chunks, and sorting takes longer
            keys, sizes = bounds[:1], np.array([len(bounds)])
            part = np.zeros(len(bounds), np.intp)
        else:
            keys, part, sizes = np.unique(bounds, return_inverse=True, return_counts=True)
        allowed = (keys & 0xFFFFFFFF) * sizes // MILLION
        if not allowed.any():
            return None
        none = np.zeros(len(bounds), bool)
        return cls(part.astype(np.uint8), allowed, none if exempt is None else exempt)

    @property
    def total(self) -> int:
        """Segments that may be missing, of all parts."""
        return int(self.allowed.sum())

    @property
    def untouchable(self) -> Bits:
        """Segments that may never be missing: exempt, or of a part that allows none."""
        out: Bits = self.exempt | (self.allowed == 0)[self.part]
        return out

    def covers(self, missing: Bits) -> bool:
        """Whether the budget allows `missing`."""
        if (missing & self.exempt).any():
            return False
        counts = np.bincount(self.part[missing], minlength=len(self.allowed))
        return bool((counts <= self.allowed).all())

    def spare(self, missing: Segments, weight: NDArray[np.float64] | None) -> Segments:
        """Segments of `missing` that need not be retransmitted: as many as are allowed, the
        lightest first."""
        candidates = missing[~self.exempt[missing]]
        if weight is not None:
            candidates = candidates[np.argsort(weight[candidates], kind="stable")]
        spared = [
            candidates[self.part[candidates] == part][:count]
            for part, count in enumerate(self.allowed.tolist())
            if count
        ]
        return np.concatenate(spared) if spared else missing[:0]
