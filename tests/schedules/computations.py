"""What clients compute in tests: a function that no order of steps and no split of spans hides."""

import numpy as np

from dlcpd.numerics.elements import STORAGE
from dlcpd.schedules.model import Compute
from dlcpd.schedules.proof.interpreter import Bytes, Computation


def backwards(dtype: str) -> Computation:
    """The elements of the source in reverse order: exact in every dtype."""

    def compute(rank: int, step: Compute, source: Bytes, target: Bytes) -> None:
        target.view(STORAGE[dtype])[:] = source.view(STORAGE[dtype])[::-1]

    return compute


def update(rank: int, step: Compute, source: Bytes, target: Bytes) -> None:
    """target = 3 * source + where the element lies, of int32."""
    at = np.arange(step.target.start // 4, (step.target.start + step.target.size) // 4)
    target.view(np.int32)[:] = 3 * source.view(np.int32) + at.astype(np.int32)
