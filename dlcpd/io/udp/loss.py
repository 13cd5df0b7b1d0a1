"""Datagrams thrown away on arrival, as a lossy network would: for tests and demonstrations."""

from dataclasses import dataclass, field

import numpy as np

from dlcpd.core.wire.bitmap import Bits


@dataclass(slots=True)
class Loss:
    """`fraction` of what arrives, at random from `seed`."""

    fraction: float
    seed: tuple[int, ...]
    _random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)

    def __bool__(self) -> bool:
        return self.fraction > 0

    def survivors(self, count: int) -> Bits:
        """Which of the next `count` datagrams get through."""
        kept: Bits = self._random.random(count) >= self.fraction
        return kept

    @property
    def of_2_32(self) -> int:
        """Lost of 2**32, for C, which draws its own numbers beginning with `state`."""
        return min(round(self.fraction * (1 << 32)), (1 << 32) - 1)

    @property
    def state(self) -> int:
        return int(self._random.integers(1, 1 << 63))
