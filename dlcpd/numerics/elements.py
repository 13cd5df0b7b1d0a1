"""The element types: views of raw bytes as numbers, and their arithmetic.

bfloat16 has no numpy type: it is stored as uint16 and widened to float32 to compute.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.core.wire.datagram import Bytes

Array = NDArray[Any]
STORAGE: Final[dict[str, np.dtype[Any]]] = {
    "float32": np.dtype("<f4"),
    "float64": np.dtype("<f8"),
    "float16": np.dtype("<f2"),
    "bfloat16": np.dtype("<u2"),
    "int8": np.dtype("i1"),
    "uint8": np.dtype("u1"),
    "int16": np.dtype("<i2"),
    "int32": np.dtype("<i4"),
    "int64": np.dtype("<i8"),
    "bool": np.dtype("?"),
    "complex64": np.dtype("<c8"),
    "complex128": np.dtype("<c16"),
}
NARROW: Final = frozenset({"float16", "bfloat16"})  # accumulate these in float32
INTEGERS: Final = frozenset({"int8", "uint8", "int16", "int32", "int64"})
COMPLEX: Final = {"complex64": "float32", "complex128": "float64"}  # type of their two parts
LARGEST: Final = {  # finite values
    "float16": 65504.0,
    "bfloat16": float.fromhex("0x1.fep127"),
    "float32": float(np.finfo(np.float32).max),
    "float64": float(np.finfo(np.float64).max),
}


def view(raw: Bytes, dtype: str) -> Array:
    """`raw` as stored elements; no copy. It need not be aligned."""
    return raw.view(STORAGE[dtype])


def wide(dtype: str) -> np.dtype[Any]:
    """The type that `widen` returns; of complex numbers, that of their parts."""
    dtype = COMPLEX.get(dtype, dtype)
    return np.dtype(np.float32) if dtype in NARROW else STORAGE[dtype]


def widen(stored: Array, dtype: str) -> Array:
    """Stored elements as numbers to compute with; a copy for 16-bit floats only."""
    if dtype == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    if dtype == "float16":
        return stored.astype(np.float32)
    return stored


def narrow(numbers: Array, dtype: str) -> Array:
    """Inverse of `widen`, rounding to nearest even; overflow becomes infinity."""
    if dtype == "bfloat16":
        bits = np.ascontiguousarray(numbers, np.float32).view(np.uint32)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        nan = np.isnan(numbers)
        return np.where(nan, 0x7FC0, rounded).astype(np.uint16)
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return numbers.astype(np.float16)
    return numbers
