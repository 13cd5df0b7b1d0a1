"""Replaces NaNs by one bit pattern, so that ranks that compute one result get equal bytes.

IEEE 754 leaves open which payload and sign a sum of two NaNs has. Compilers and vector units choose
by the order of operands, the length of an array and the instructions that a CPU has.
"""

import numpy as np

from dlcpd.core.wire.datagram import Bytes
from dlcpd.numerics.elements import COMPLEX, INTEGERS, view


def make_canonical(result: Bytes, dtype: str) -> None:
    """Replace each NaN by the quiet NaN without sign and payload, in place; of complex numbers in
    each part. Stored bfloat16 has no other NaN (elements.narrow)."""
    if dtype in INTEGERS or dtype in ("bool", "bfloat16"):
        return
    numbers = view(result, COMPLEX.get(dtype, dtype))
    nans = np.isnan(numbers)
    if np.count_nonzero(nans):
        numbers[nans] = np.nan
