"""Bits on the wire: little-endian within a byte, nothing lost at any length."""

import numpy as np
import pytest

from dlcpd.core.wire.bitmap import indices, pack_bits


def bits(text: str) -> np.ndarray:
    return np.array([c == "1" for c in text], bool)


@pytest.mark.parametrize(
    ("text", "packed"),
    [
        ("1", "01"),
        ("01", "02"),
        ("00000001", "80"),
        ("000000001", "0001"),
        ("111111111", "ff01"),
        ("0" * 16, "0000"),
    ],
)
def test_bit_i_of_the_stream_is_element_i(text: str, packed: str) -> None:
    assert pack_bits(bits(text)).hex() == packed


def test_indices_are_ascending_positions() -> None:
    assert indices(bits("0110001")).tolist() == [1, 2, 6]
    assert indices(bits("000")).tolist() == []
