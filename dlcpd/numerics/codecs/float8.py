"""The floats of 8 bits: e4m3 (NaN, no infinity, up to 448) and e5m2 (as IEEE, up to 57344).

Rounded to nearest, ties to even, by tables. Source: Micikevicius et al., FP8 Formats for Deep
Learning, 2022; e4m3 is also called e4m3fn.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.contract.codec import CodecName
from dlcpd.core.wire.datagram import Bytes
from dlcpd.numerics.codecs.block_scaled import BlockScaled
from dlcpd.numerics.codecs.codec import Numbers

_SIGN: Final = 0x80  # of a code


@dataclass(frozen=True)
class Float8:
    """A format: sign, exponent, `digits` of mantissa."""

    digits: int
    bias: int
    largest: float
    infinity: int | None  # its code, if there is one
    nan: int  # the code that is written; a reader accepts every code of a NaN

    @cached_property
    def _value_of(self) -> Numbers:
        """Value of each code."""
        magnitudes = np.arange(_SIGN)
        exponents, fractions = magnitudes >> self.digits, magnitudes & ((1 << self.digits) - 1)
        normal = np.ldexp(1.0 + fractions / (1 << self.digits), exponents - self.bias)
        tiny = np.ldexp(fractions / (1 << self.digits), 1 - self.bias)
        found = np.where(exponents > 0, normal, tiny)
        found[found > self.largest] = np.nan
        if self.infinity is not None:
            found[self.infinity] = np.inf
        return np.concatenate([found, -found]).astype(np.float32)

    @cached_property
    def _code_of(self) -> Bytes:
        """Code of each float32 by its upper 16 bits. The last of these is also 1 if any of the
        lower 16 is: the lower bits only tell a tie from a value above it."""
        numbers = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
        with np.errstate(invalid="ignore"):  # some are signalling NaNs
            magnitudes = np.abs(numbers[: 1 << 15]).astype(np.float64)
        finite = self._value_of[: self._count].astype(np.float64)
        above = np.searchsorted(finite, magnitudes).clip(1, self._count - 1)
        middle = (finite[above - 1] + finite[above]) / 2
        up = (magnitudes > middle) | ((magnitudes == middle) & (above % 2 == 0))
        codes = np.where(up, above, above - 1)
        codes[np.isnan(magnitudes)] = self.nan
        codes[np.isinf(magnitudes)] = self.nan if self.infinity is None else self.infinity
        return np.concatenate([codes, codes | _SIGN]).astype(np.uint8)

    @cached_property
    def _count(self) -> int:
        """Codes of finite values that are not negative: 0 to the largest."""
        return int(np.flatnonzero(self._value_of[:_SIGN] == self.largest)[0]) + 1

    def codes(self, numbers: Numbers) -> Bytes:
        """Codes of `numbers`; finite values beyond the largest become the largest."""
        bits = np.ascontiguousarray(numbers).view(np.uint32)
        upper = (bits >> 16).astype(np.uint16)
        upper |= (bits & 0xFFFF) != 0
        found: NDArray[np.uint8] = self._code_of.take(upper)
        return found

    def values(self, body: Bytes) -> Numbers:
        """Inverse of `codes`, except for rounding errors."""
        found: Numbers = self._value_of.take(body)
        return found


E4M3: Final = Float8(digits=3, bias=7, largest=448.0, infinity=None, nan=0x7F)
E5M2: Final = Float8(digits=2, bias=15, largest=57344.0, infinity=0x7C, nan=0x7E)
FORMATS: Final = {"fp8_e4m3": E4M3, "fp8_e5m2": E5M2}


def codec(wanted: CodecName) -> BlockScaled:
    """Constructor for `dlcpd.contract.codec.KINDS`."""
    form = FORMATS[wanted.kind]
    return BlockScaled(wanted.kind, form.largest, form.codes, form.values)
