"""Traffic class and bound of each segment of a tensor: those of the layer that it begins in."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from dlcpd.contract.messages import LayerRow
from dlcpd.core.transfer.packetizer import segment_count

MILLION: Final = 1_000_000  # bounds are in millionths, so that both ends round alike


@dataclass(frozen=True, slots=True, eq=False)
class Layers:
    """Piecewise constant over a tensor's bytes: from `starts[i]` on, class and bound i hold."""

    starts: NDArray[np.int64]  # bytes, ascending from 0
    classes: NDArray[np.uint8]
    bounds: NDArray[np.int64]  # millionths of the segments that may be waived
    most_urgent: int = field(init=False)  # the class of segments that are not told apart
    lossless: bool = field(init=False)  # no segment may be waived
    uniform: bool = field(init=False)  # one row

    @classmethod
    def new(cls, rows: Sequence[LayerRow], traffic_class: int, max_loss: float) -> Self:
        """From the rows of a submission; without any, one layer."""
        if not rows:
            return cls._one(traffic_class, round(max_loss * MILLION))
        if len(rows) == 1:
            return cls._one(rows[0].traffic_class, rows[0].bound)
        starts, classes, bounds = np.array(rows, np.int64).T
        return cls(starts, classes.astype(np.uint8), bounds)

    @classmethod
    @lru_cache(maxsize=256)
    def _one(cls, traffic_class: int, bound: int) -> Self:
        return cls(np.zeros(1, np.int64), np.array([traffic_class], np.uint8), np.array([bound]))

    def of_segments(self, start: int, size: int, segment_size: int) -> NDArray[np.intp]:
        """Row of each segment of the chunk of `size` bytes that begins at byte `start`."""
        count = segment_count(size, segment_size)
        if self.uniform:
            return np.zeros(count, np.intp)
        begins = start + segment_size * np.arange(count)
        return np.searchsorted(self.starts, begins, side="right") - 1

    def classes_of(self, start: int, size: int, segment_size: int) -> NDArray[np.uint8]:
        """Class of each segment of that chunk."""
        if self.uniform:
            return np.full(segment_count(size, segment_size), self.most_urgent, np.uint8)
        return self.classes[self.of_segments(start, size, segment_size)]

    def last_class(self, start: int, size: int, segment_size: int) -> int:
        """The least urgent class of that chunk."""
        if self.uniform:
            return self.most_urgent
        return int(self.classes_of(start, size, segment_size).max())

    def __post_init__(self) -> None:
        object.__setattr__(self, "most_urgent", int(self.classes.min()))
        object.__setattr__(self, "lossless", not self.bounds.any())
        object.__setattr__(self, "uniform", len(self.starts) == 1)
