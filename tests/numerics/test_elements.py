"""Element types: every 16-bit pattern widens and narrows as IEEE 754 says."""

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.contract.messages import DTYPES
from dlcpd.numerics.elements import COMPLEX, INTEGERS, NARROW, STORAGE, narrow, view, widen

ALL = np.arange(1 << 16, dtype=np.uint16)
CANONICAL_NAN = 0x7FC0


def stored(dtype: str) -> np.ndarray:
    return ALL.view(STORAGE[dtype])


def float_of(pattern: int) -> float:
    """The number behind a bfloat16 pattern: the upper half of a binary32."""
    number: float = struct.unpack("<f", struct.pack("<I", pattern << 16))[0]
    return number


def nearest_bfloat16(bits: int) -> int:
    """Round a binary32 to bfloat16 by looking at its neighbours, ties to even."""
    below, rest = bits >> 16, bits & 0xFFFF
    if (bits & 0x7FFFFFFF) > 0x7F800000:
        return CANONICAL_NAN
    if rest > 0x8000 or (rest == 0x8000 and below & 1):
        return below + 1
    return below


def bits_of(numbers: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(numbers).view(f"<u{numbers.dtype.itemsize}")


def test_every_dtype_of_the_contract_has_its_storage() -> None:
    assert STORAGE.keys() >= set(DTYPES)
    assert set(STORAGE) > NARROW | INTEGERS | set(COMPLEX)


def test_a_view_shares_its_memory() -> None:
    raw = np.zeros(16, np.uint8)
    view(raw, "float32")[1] = 1.0
    assert raw[4:8].tobytes() == struct.pack("<f", 1.0)


def test_every_bfloat16_widens_to_its_number() -> None:
    wide = widen(stored("bfloat16"), "bfloat16")
    assert wide.dtype == np.float32
    for pattern, number in zip(ALL.tolist(), wide.tolist(), strict=True):
        expected = float_of(pattern)
        assert number == expected or (math.isnan(number) and math.isnan(expected))


@pytest.mark.parametrize("dtype", sorted(NARROW))
def test_every_16_bit_float_survives_widen_and_narrow(dtype: str) -> None:
    back = narrow(widen(stored(dtype), dtype), dtype)
    nan = np.isnan(widen(stored(dtype), dtype))
    assert (bits_of(back)[~nan] == ALL[~nan]).all()
    assert np.isnan(widen(back[nan], dtype)).all()


def around(patterns: np.ndarray) -> np.ndarray:
    """Binary32 patterns just below, at and above every rounding border of bfloat16."""
    high = patterns.astype(np.uint32) << 16
    return np.concatenate([high | low for low in (0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF)])


def test_narrowing_to_bfloat16_rounds_to_nearest_even_everywhere() -> None:
    bits = around(ALL)
    got = narrow(bits.view(np.float32), "bfloat16").tolist()
    assert got == [nearest_bfloat16(b) for b in bits.tolist()]


@given(st.integers(0, (1 << 32) - 1))
def test_narrowing_to_bfloat16_rounds_any_number(bits: int) -> None:
    number = np.array([bits], np.uint32).view(np.float32)
    assert int(narrow(number, "bfloat16")[0]) == nearest_bfloat16(bits)


@pytest.mark.parametrize("dtype", sorted(NARROW))
def test_overflow_becomes_infinity(dtype: str) -> None:
    huge = np.array([3.4e38, -3.4e38], np.float32)
    assert widen(narrow(huge, dtype), dtype).tolist() == [math.inf, -math.inf]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_wide_types_pass_through(dtype: str) -> None:
    numbers = np.array([1, 2, 3], STORAGE[dtype])
    assert widen(numbers, dtype) is numbers
    assert narrow(numbers, dtype) is numbers
