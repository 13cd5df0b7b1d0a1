"""NaNs of any payload become one; nothing else changes."""

import numpy as np
import pytest

from dlcpd.numerics.canonical import make_canonical
from dlcpd.numerics.elements import STORAGE

PAYLOADS = {
    "float16": [0x7E01, 0xFE00, 0xFFFF, 0x7C01],
    "float32": [0x7FC00001, 0xFFC00000, 0x7F800001, 0xFFFFFFFF],
    "float64": [0x7FF8000000000001, 0xFFF8000000000000, 0x7FF0000000000001],
}
BITS = {"float16": np.uint16, "float32": np.uint32, "float64": np.uint64}
PLAIN = [0.0, -0.0, 1.5, np.inf, -np.inf]


@pytest.mark.parametrize("dtype", PAYLOADS)
@pytest.mark.parametrize("at", [0, 1])
def test_every_nan_becomes_the_same(dtype: str, at: int) -> None:
    nans = np.array(PAYLOADS[dtype], BITS[dtype])
    plain = np.array(PLAIN, dtype).view(BITS[dtype])
    data = np.zeros(at + (len(nans) + len(plain)) * nans.itemsize, np.uint8)[at:]  # not aligned
    data[:] = np.concatenate([nans, plain]).view(np.uint8)
    make_canonical(data, dtype)
    after = data.copy().view(BITS[dtype])
    assert (after[: len(nans)] == np.array(np.nan, dtype).view(BITS[dtype])).all()
    assert (after[len(nans) :] == plain).all()


def test_parts_of_complex_numbers_are_looked_at_by_themselves() -> None:
    bits = np.array([0xFFC01234, 0x3F800000, 0x3F800000, 0x7F800001], np.uint32)
    data = bits.view(np.uint8).copy()
    make_canonical(data, "complex64")
    assert data.view(np.uint32).tolist() == [0x7FC00000, 0x3F800000, 0x3F800000, 0x7FC00000]


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "bool", "bfloat16"])
def test_what_holds_no_nan_is_left_alone(dtype: str) -> None:
    data = np.full(8 * STORAGE[dtype].itemsize, 0xFF, np.uint8)
    make_canonical(data, dtype)
    assert (data == 0xFF).all()
