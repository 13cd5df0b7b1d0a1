"""Datagrams that a wire loses at random: each by itself, or in bursts (the Gilbert model)."""

import random

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]


class Losses:
    """Runs of datagrams that arrive and of datagrams that are lost, in alternation.

    The lengths of both are geometric. `fraction` of all datagrams is lost, `burst` in sequence on
    average. With a burst of 1 each datagram is lost or not whatever became of the one before it:
    two may then be lost in sequence by chance.
    """

    def __init__(self, fraction: float, burst: float, seed: str) -> None:
        if not (0 <= fraction < 1 and burst >= 1):
            raise ValueError(f"cannot lose {fraction:g} of the datagrams in bursts of {burst:g}")
        self._random = random.Random(seed)
        self._ends = 1 / burst if burst > 1 else 1 - fraction  # probability, after each lost one
        self._begins = fraction * self._ends / (1 - fraction)  # likewise, after one that arrived
        self._losing = self._random.random() < fraction
        self._left = self._length()
        self.lost = 0

    def keep(self, count: int) -> Mask | None:
        """Which of the next `count` datagrams arrive; None: all of them."""
        if not self._losing and self._left >= count:
            self._left -= count
            return None
        kept = np.empty(count, bool)
        at = 0
        while at < count:
            if not self._left:
                self._losing = not self._losing
                self._left = self._length()
            run = min(self._left, count - at)
            kept[at : at + run] = not self._losing
            self._left -= run
            at += run
        self.lost += count - int(np.count_nonzero(kept))
        return kept

    def _length(self) -> int:
        """Datagrams of the run that begins: at least one."""
        change = self._ends if self._losing else self._begins
        if change <= 0:
            return 1 << 60
        if change >= 1:
            return 1
        # The inverse of the geometric distribution, so that one number is drawn per run.
        return 1 + int(np.log(1 - self._random.random()) / np.log(1 - change))
