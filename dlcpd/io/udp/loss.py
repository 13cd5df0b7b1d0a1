"""Loss and corruption of arriving datagrams on purpose: for tests and demonstrations."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.core.wire.bitmap import Bits, Segments
from dlcpd.core.wire.datagram import Bytes


@dataclass(slots=True)
class RandomLoss:
    """Discards `fraction` of the arriving datagrams, at random from `seed`."""

    fraction: float
    seed: tuple[int, ...]
    _random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)

    def __bool__(self) -> bool:
        return self.fraction > 0

    def survivors(self, count: int) -> Bits:
        """Which of the next `count` datagrams are kept."""
        kept: Bits = self._random.random(count) >= self.fraction
        return kept

    @property
    def of_2_32(self) -> int:
        """Lost of 2**32, for C, which draws its own numbers beginning with `state`."""
        return min(round(self.fraction * (1 << 32)), (1 << 32) - 1)

    @property
    def state(self) -> int:
        return int(self._random.integers(1, 1 << 63))


@dataclass(slots=True)
class Corrupt:
    """Flips one bit, anywhere, of `fraction` of the arriving datagrams, at random from `seed`: as a
    switch or a NIC does without a trace in UDP's own checksum."""

    fraction: float = 0.0
    seed: tuple[int, ...] = (0,)
    _random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)

    def __bool__(self) -> bool:
        return self.fraction > 0

    @property
    def of_2_32(self) -> int:
        """Corrupted of 2**32, for C, which draws its own numbers."""
        return min(round(self.fraction * (1 << 32)), (1 << 32) - 1)

    def rows(self, rows: Bytes, index: Segments, lengths: NDArray[np.intp]) -> int:
        """Corrupt some of the datagrams `rows[index[i]][:lengths[i]]`; returns how many."""
        hit = np.flatnonzero(self._random.random(len(index)) < self.fraction)
        hit = hit[lengths[hit] > 0]
        bits = self._random.integers(0, 8 * lengths[hit]) if len(hit) else hit
        rows[index[hit], bits // 8] ^= (1 << bits % 8).astype(np.uint8)
        return len(hit)

    def one(self, data: bytes) -> bytes:
        """One datagram, corrupted or not."""
        if not data or self._random.random() >= self.fraction:
            return data
        bit = int(self._random.integers(8 * len(data)))
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        return bytes(changed)


NO_CORRUPTION: Final = Corrupt()
