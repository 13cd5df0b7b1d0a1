"""Values rounded to 16 bits: bfloat16 has the range of float32, float16 more of its digits."""

from typing import Final

import numpy as np

from dlcpd.contract.codec import CodecName
from dlcpd.core.wire.datagram import Bytes
from dlcpd.numerics.codecs.codec import Grain, Numbers
from dlcpd.numerics.elements import LARGEST, narrow, view, widen


class Float16:
    """Rounds to nearest, ties to even; finite values beyond the largest become the largest."""

    block, item, grain = 1, 2, Grain(1, 2)

    def __init__(self, name: str, dtype: str) -> None:
        self.name, self._dtype, self._largest = name, dtype, np.float32(LARGEST[dtype])

    def head(self, count: int) -> int:  # there is none
        return 0

    def body(self, count: int) -> int:
        return 2 * count

    def encode(self, numbers: Numbers, head: Bytes, body: Bytes) -> None:
        view(body, self._dtype)[:] = narrow(self._within(numbers), self._dtype)

    def decode(self, head: Bytes, body: Bytes, numbers: Numbers) -> None:
        numbers[:] = widen(view(body, self._dtype), self._dtype)

    def items(self, head: Bytes, body: Bytes, count: int) -> Numbers:
        found: Numbers = widen(view(body, self._dtype), self._dtype)
        return found

    def _within(self, numbers: Numbers) -> Numbers:
        magnitude = np.abs(numbers)
        beyond = magnitude > self._largest
        if not np.count_nonzero(beyond):
            return numbers
        finite = beyond & np.isfinite(magnitude)
        return np.where(finite, np.copysign(self._largest, numbers), numbers)


DTYPES: Final = {"bf16": "bfloat16", "fp16": "float16"}


def codec(wanted: CodecName) -> Float16:
    """Constructor for `dlcpd.contract.codec.KINDS`."""
    return Float16(wanted.kind, DTYPES[wanted.kind])
