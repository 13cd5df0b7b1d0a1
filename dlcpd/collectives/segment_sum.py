"""A reduction that may be done segment by segment while its operands arrive."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dlcpd.core.wire.datagram import Bytes
from dlcpd.numerics.reduce import reduce_in_order

DTYPE = "float32"  # the one that io adds up; other types are reduced when all data are here
ELEMENT = 4  # bytes


def may_add(dtype: str, op: str, segment_size: int) -> bool:
    """Whether io may add up segments of such operands."""
    return dtype == DTYPE and op in ("sum", "avg") and segment_size % ELEMENT == 0


@dataclass(slots=True, eq=False)
class SegmentSum:
    """`target` = operands[0] + operands[1] + ...; all but `coming` of them are here. See
    core.transfer.incoming.Sum."""

    target: Bytes
    operands: list[Bytes]
    coming: int
    segment_size: int
    divide_by: int = 1
    here: NDArray[np.uint8] = field(init=False)

    def __post_init__(self) -> None:
        segments = -(-len(self.target) // self.segment_size)
        self.here = np.full(segments, len(self.operands) - self.coming, np.uint8)

    def finish(self) -> None:
        """All operands are here: add up the segments that io has not added up."""
        left = np.flatnonzero(self.here < len(self.operands))
        if not len(left):
            return
        gaps = np.flatnonzero(np.diff(left) != 1)
        starts = left[np.concatenate([[0], gaps + 1])].tolist()
        stops = (left[np.concatenate([gaps, [len(left) - 1]])] + 1).tolist()
        for start, stop in zip(starts, stops, strict=True):
            self._add(slice(start * self.segment_size, stop * self.segment_size))

    def _add(self, at: slice) -> None:
        parts = [operand[at] for operand in self.operands]
        reduce_in_order(self.target[at], parts, DTYPE, "sum", divide_by=self.divide_by)
