"""Codecs: how far values may be off, where zeros must lie, and what is never made a number."""

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dlcpd.core.wire.datagram import Bytes
from dlcpd.numerics.codecs import coding
from dlcpd.numerics.codecs.codec import PIECE, Numbers, body_at, pieces, wire_size
from dlcpd.numerics.codecs.float8 import E4M3, E5M2, Float8
from dlcpd.numerics.codecs.names import codec_of
from dlcpd.numerics.codecs.topk import BLOCK as LARGEST_BLOCK
from dlcpd.numerics.elements import STORAGE, Array, narrow, view, widen

DENSE = {"bf16": 2**-8, "fp16": 2**-11, "int8": 1 / 254, "fp8_e4m3": 2**-4, "fp8_e5m2": 2**-3}
SPARSE = ("topk:0.01", "topk:0.25")
ALL = (*DENSE, *SPARSE)
COUNTS = (1, 7, 255, 256, 257, 4096, 5000, PIECE + 300)
EIGHTHS = [
    (E4M3, np.dtype(ml_dtypes.float8_e4m3fn)),
    (E5M2, np.dtype(ml_dtypes.float8_e5m2)),
]


def drawn(count: int, seed: int = 0) -> Numbers:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=count) * np.exp(rng.normal(size=count))).astype(np.float32)


def there(name: str, values: Bytes, dtype: str = "float32", left: Array | None = None) -> Bytes:
    """The wire."""
    codec = codec_of(name)
    wire = np.full(wire_size(codec, len(values) // STORAGE[dtype].itemsize), 0xFF, np.uint8)
    sizes = list(coding.encode(codec, dtype, values, wire, left))
    assert sum(sizes) == len(values)
    return wire


def back(name: str, wire: Bytes, size: int, dtype: str = "float32") -> Bytes:
    values = np.full(size, 0xFF, np.uint8)
    coding.decode(codec_of(name), dtype, wire, values)
    return values


def round_trip(name: str, numbers: Numbers) -> Numbers:
    values = numbers.view(np.uint8)
    return back(name, there(name, values), len(values)).view(np.float32)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", DENSE)
def test_dense_codecs_are_this_precise(name: str, count: int) -> None:
    numbers = drawn(count)
    apart = np.abs(round_trip(name, numbers) - numbers)
    if name == "int8":  # relative to the largest of a block
        whole = np.concatenate([np.abs(numbers), np.zeros(-count % 256, np.float32)])
        of = np.repeat(whole.reshape(-1, 256).max(axis=1), 256)[:count]
    else:
        of = np.maximum(np.abs(numbers), 2.0**-6)  # below: fewer digits
    assert (apart <= 1.001 * DENSE[name] * of).all()


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", SPARSE)
def test_the_largest_of_each_block_are_kept_bit_by_bit(name: str, count: int) -> None:
    numbers = drawn(count)
    got = round_trip(name, numbers)
    for start in range(0, count, LARGEST_BLOCK):
        block, kept = (a[start : start + LARGEST_BLOCK] for a in (numbers, got))
        wanted = int(np.ceil(float(name.partition(":")[2]) * len(block)))
        least = np.sort(np.abs(block))[-wanted]
        np.testing.assert_array_equal(kept, np.where(np.abs(block) >= least, block, 0))


@pytest.mark.parametrize(("ours", "theirs"), EIGHTHS)
def test_floats_of_8_bits_are_those_of_a_known_library(
    ours: Float8, theirs: "np.dtype[np.void]"
) -> None:
    codes = np.arange(256, dtype=np.uint8)
    values = codes.view(theirs).astype(np.float32)
    np.testing.assert_array_equal(ours.values(codes), values)
    ties = (values[:-1] + values[1:]) / 2
    rng = np.random.default_rng(1)
    many = rng.normal(size=50_000) * 10.0 ** rng.uniform(-8, 3, 50_000)
    near = [np.nextafter(ties, np.float32(sign)) for sign in (-np.inf, np.inf)]
    numbers = np.concatenate([values, ties, *near, many]).astype(np.float32)
    numbers = numbers[np.abs(numbers) <= ours.largest]
    expected = numbers.astype(theirs).view(np.uint8)
    np.testing.assert_array_equal(ours.codes(numbers), expected)


@pytest.mark.parametrize("name", ALL)
def test_all_of_a_tensor_is_coded_as_its_pieces_are(name: str) -> None:
    codec, count = codec_of(name), PIECE + 5000
    numbers = drawn(count)
    wire = there(name, numbers.view(np.uint8))
    assert len(wire) == wire_size(codec, count)
    body = wire[body_at(codec, count) :]
    first, second = pieces(codec, count)
    for piece in (first, second):
        part = numbers[piece.values]
        alone = there(name, part.view(np.uint8))
        head = codec.head(len(part))
        assert (wire[piece.head] == alone[:head]).all()
        assert (body[piece.body] == alone[body_at(codec, len(part)) :]).all()


@pytest.mark.parametrize("name", ALL)
def test_zero_bytes_of_a_body_are_zeros(name: str) -> None:
    codec, numbers = codec_of(name), drawn(9000)
    wire = there(name, numbers.view(np.uint8))
    wire[body_at(codec, 9000) :] = 0
    assert not back(name, wire, 36_000).any()


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_what_segments_hold_adds_up_to_the_whole(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(ALL))
    count, size = data.draw(st.integers(1, 9000)), data.draw(st.sampled_from([64, 192, 1152]))
    numbers, codec = drawn(count), codec_of(name)
    wire = there(name, numbers.view(np.uint8))
    first = -(-body_at(codec, count) // size)
    segments = np.arange(first, -(-len(wire) // size))
    lost = np.array(data.draw(st.lists(st.sampled_from([False, True]), min_size=1, max_size=40)))
    gone = segments[np.resize(lost, len(segments))]
    held = coding.lost_values(codec, "float32", wire, count, gone, segment_size=size)
    arrived = wire.copy()
    for segment in gone.tolist():
        arrived[segment * size : (segment + 1) * size] = 0
    rest = back(name, arrived, 4 * count).view(np.float32)
    whole = back(name, wire, 4 * count).view(np.float32)
    np.testing.assert_array_equal(rest + held, whole)
    energies, head = coding.wire_energies(codec, count, wire, size)
    assert head == first
    assert np.isinf(energies[:head]).all()
    for segment in segments.tolist():
        one = coding.lost_values(
            codec, "float32", wire, count, np.array([segment]), segment_size=size
        )
        np.testing.assert_allclose(energies[segment], one.astype(float) @ one, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ALL)
def test_what_is_left_is_the_difference(name: str, dtype: str) -> None:
    wide = np.float64 if dtype == "float64" else np.float32
    values: NDArray[np.uint8] = narrow(drawn(5000).astype(wide), dtype).view(np.uint8)
    left = np.full(5000, np.nan, wide)
    wire = there(name, values, dtype, left)
    got = back(name, wire, len(values), dtype)
    given_, sent = (widen(view(v, dtype), dtype) for v in (values, got))
    together: NDArray[Any] = left + sent
    np.testing.assert_allclose(together, given_, rtol=1e-7, atol=1e-10)
    rounded = values.copy()
    work = coding.encode(codec_of(name), dtype, rounded, wire.copy(), rounds=True)
    assert list(work) == [len(values)]
    assert (rounded == got).all()


@pytest.mark.parametrize("name", ALL)
def test_no_number_stays_none_and_a_number_stays_one(name: str) -> None:
    numbers = drawn(600)
    largest = np.finfo(np.float32).max
    numbers[[3, 300, 599]] = np.nan, np.inf, -np.inf
    numbers[[5, 301]] = largest, -largest
    left = np.zeros(600, np.float32)
    wire = there(name, numbers.view(np.uint8), left=left)
    got = back(name, wire, 2400).view(np.float32)
    none = ~np.isfinite(numbers)
    assert (~np.isfinite(got) == none).all()
    assert np.isfinite(left).all()
    beyond = np.array([5, 301])
    np.testing.assert_allclose((got + left)[beyond], numbers[beyond], rtol=1e-6)
    energies, _ = coding.wire_energies(codec_of(name), 600, wire, 1 << 20)
    assert np.isinf(energies).all()


@pytest.mark.parametrize("name", ALL)
def test_more_than_float32_holds_stays_a_number(name: str) -> None:
    values = np.zeros(300)
    values[[0, 299]] = 1e300, -1e300
    left = np.zeros(300)
    got = back(name, there(name, values.view(np.uint8), "float64", left), 2400, "float64")
    assert np.isfinite(got.view(np.float64)).all()
    np.testing.assert_allclose(got.view(np.float64) + left, values, rtol=1e-15)


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("size", [0.0, 1e-45, 1e-39, 1e-37, 1e-30])
def test_tiny_values_are_sent_or_left(name: str, size: float) -> None:
    numbers = np.full(300, size, np.float32)
    numbers[1::2] *= -1
    left = np.zeros(300, np.float32)
    got = back(name, there(name, numbers.view(np.uint8), left=left), 1200).view(np.float32)
    np.testing.assert_array_equal(got + left, numbers)


@pytest.mark.parametrize("name", SPARSE)
def test_places_that_are_none_stay_within_the_tensor(name: str) -> None:
    wire = there(name, drawn(5000).view(np.uint8))
    wire[: body_at(codec_of(name), 5000)] = 0xFF
    memory = np.zeros(20_064, np.uint8)
    coding.decode(codec_of(name), "float32", wire, memory[:20_000])
    assert not memory[20_000:].any()


def test_layouts_add_up() -> None:
    for name, count in itertools.product(ALL, COUNTS):
        codec = codec_of(name)
        assert PIECE % codec.block == 0
        parts = pieces(codec, count)
        assert parts[-1].values.stop == count
        assert (parts[-1].head.stop, parts[-1].body.stop) == (codec.head(count), codec.body(count))
        assert body_at(codec, count) % 8 == 0
        whole = count // codec.grain.values
        assert codec.body(whole * codec.grain.values) == whole * codec.grain.size
