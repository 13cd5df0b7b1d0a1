"""Segments of a transfer that its receiver may waive without asking: docs/wire.md, PERMIT."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.core.wire.bitmap import Bits, Segments

MUST_ARRIVE: Final = 255  # cost of a segment that is never waived
MOST_COST: Final = MUST_ARRIVE - 1
MOST_LIMIT: Final = (1 << 16) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Permit:
    """The sender keeps as residual whatever its receiver waives within this, and never vetoes it.

    The costs of the waived segments are at most `limit` in all. They stand for energy. The budget
    of the transfer holds as well.
    """

    limit: int
    costs: NDArray[np.uint8]  # by segment

    def covers(self, missing: Bits) -> bool:
        """Whether `missing` may be waived without asking."""
        costs = self.costs[missing]
        return not (costs == MUST_ARRIVE).any() and int(costs.sum(dtype=np.int64)) <= self.limit

    def first(self, segments: Segments) -> Segments:
        """As many of `segments`, in their order, as may be waived together."""
        wanted = segments[self.costs[segments] != MUST_ARRIVE]
        costs = np.cumsum(self.costs[wanted], dtype=np.int64)
        found: Segments = wanted[: int(np.searchsorted(costs, self.limit, side="right"))]
        return found
