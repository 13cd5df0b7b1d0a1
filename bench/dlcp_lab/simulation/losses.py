"""Datagrams that a wire loses at random: each by itself, or in bursts (the Gilbert model)."""

import math
import random

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]


class Losses:
    """Datagrams that arrive, and bursts in which all are lost, in alternation.

    Both lengths are geometric: `fraction` of all datagrams is lost, `burst` in sequence on average.
    A burst of n datagrams lasts as long as the wire needs for n datagrams. On a wire with pauses,
    less than `fraction` is lost. With a burst of 1, losses do not depend on one another.
    """

    def __init__(self, fraction: float, burst: float, seed: str) -> None:
        if not (0 <= fraction < 1 and burst >= 1):
            raise ValueError(f"cannot lose {fraction:g} of the datagrams in bursts of {burst:g}")
        self._random = random.Random(seed)
        self._ends = 1 / burst  # probability, after each lost one
        self._begins = fraction / (fraction + burst * (1 - fraction))  # likewise, of each other
        self._until = -math.inf  # seconds, end of the burst
        self._left = self._drawn(self._begins)  # datagrams before the next burst
        self.lost = 0

    def keep(self, count: int, first: float = 0.0, each: float = 1.0) -> Mask | None:
        """Which of the next `count` datagrams arrive; None: all of them. They leave from `first`
        on, every `each` seconds."""
        if self._left >= count and first >= self._until:
            self._left -= count
            return None
        kept = np.zeros(count, bool)
        at = 0
        while at < count:
            now = first + at * each
            if now < self._until:
                at += math.ceil((self._until - now) / each)
                continue
            run = min(self._left, count - at)
            kept[at : at + run] = True
            self._left -= run
            at += run
            if at < count:
                # Half a datagram less: the first one behind the burst arrives.
                length = 1 + self._drawn(self._ends) - 0.5
                self._until = first + (at + length) * each
                self._left = self._drawn(self._begins)
        self.lost += count - int(np.count_nonzero(kept))
        return kept

    def _drawn(self, probability: float) -> int:
        """Failures before a success of this probability."""
        if probability >= 1:
            return 0
        if probability <= 0:
            return 1 << 60
        # The inverse of the geometric distribution, so that one number is drawn per run.
        return int(np.log(1 - self._random.random()) / np.log(1 - probability))
