"""One NaN for all: where several ranks compute one result, their CPUs must not tell it apart.

IEEE 754 leaves open which payload and sign a sum of two NaNs has. Compilers and vector units choose
by the order of operands, the length of an array and the instructions that a CPU has.
"""

import numpy as np

from dlcpd.core.wire.datagram import Bytes
from dlcpd.numerics.elements import COMPLEX, INTEGERS, view


def make_canonical(result: Bytes, dtype: str) -> None:
    """Make each NaN the quiet one without sign and payload, in place; of complex numbers in each
    part. bfloat16 has no other by the time it is stored (elements.narrow)."""
    if dtype in INTEGERS or dtype in ("bool", "bfloat16"):
        return
    numbers = view(result, COMPLEX.get(dtype, dtype))
    nans = np.isnan(numbers)
    if np.count_nonzero(nans):
        numbers[nans] = np.nan
