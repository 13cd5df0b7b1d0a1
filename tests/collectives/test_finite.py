"""Finite gradients give finite results, over any dtype, codec, loss and schedule, and what ranks
gave in is what they got and what waits, to the digits of float32."""

from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcp_lab.simulation.reference import Tensor
from dlcpd.numerics.elements import LARGEST, NARROW, STORAGE, narrow, wide, widen
from dlcpd.numerics.residual import Hole
from dlcpd.schedules.builders.hierarchical import hierarchical

NAME, WORLD, COUNT = "layer.weight", 3, 4000
CODECS = ("", "bf16", "fp16", "int8", "fp8_e4m3", "fp8_e5m2", "topk:0.1")
CASES = [
    (dtype, codec)
    for dtype in sorted(LARGEST)
    for codec in CODECS
    if dtype not in NARROW or codec not in ("bf16", "fp16")
]


def network(loss: float, seed: int, **options: Any) -> SimNetwork:
    link = SimLink(loss=loss, jitter=40e-6 if loss else 0.0)
    return SimNetwork(WORLD, link, seed=seed, segment_size=64, chunk_segments=80, **options)


def gradients(dtype: str, most: float, seed: int) -> list[Tensor]:
    """Of each rank, of magnitudes up to `most`, some of which are `most`."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(WORLD):
        numbers = most * rng.uniform(-1, 1, COUNT) * 10.0 ** rng.uniform(-4, 0, COUNT)
        numbers[:50], numbers[50:100] = most, -most
        found.append(narrow(numbers.astype(wide(dtype)).clip(-most, most), dtype))
    return found


def numbers(tensor: Tensor, dtype: str) -> np.ndarray:
    """As float64, of which sums are known well enough; divided so that they fit."""
    found: np.ndarray = widen(tensor, dtype).astype(np.float64) / 64
    return found


def waiting(net: SimNetwork, dtype: str, scale: float) -> np.ndarray:
    """What all ranks keep, as `numbers` are, in the present loss scale."""
    total, item = np.zeros(COUNT), STORAGE[dtype].itemsize
    for accounts in net.accounts:
        for hole in accounts.residuals.holes():
            assert hole.values.dtype == wide(dtype)
            assert np.isfinite(hole.values).all()
            for low, values in spans(hole, item):
                total[low : low + len(values)] += values / 64 * (scale / hole.scale)
    return total


def spans(hole: Hole, item: int) -> list[tuple[int, np.ndarray]]:
    """By segment: first element in the tensor, and the values."""
    per = hole.segment_size // item
    lows = [(hole.start // item) + s * per for s in hole.segments.tolist()]
    return [(low, hole.values[at * per : (at + 1) * per]) for at, low in enumerate(lows)]


@pytest.mark.parametrize(
    "case", [("float16", ""), ("bfloat16", ""), ("float16", "topk:0.1")], ids=" ".join
)
def test_gradients_at_the_limit_give_finite_averages(case: tuple[str, str]) -> None:
    finite_averages(case, 0.1, 1.0, "avg", 1)


@pytest.mark.heavy
@given(
    st.sampled_from(CASES),
    st.sampled_from([0.0, 0.1]),
    st.sampled_from([1.0, 0.5, 1e-3]),
    st.sampled_from(["avg", "sum"]),
    st.integers(0, 1 << 16),
)
@settings(max_examples=40)
def test_finite_gradients_give_finite_averages(
    case: tuple[str, str], loss: float, size: float, op: str, seed: int
) -> None:
    finite_averages(case, loss, size, op, seed)


def finite_averages(case: tuple[str, str], loss: float, size: float, op: str, seed: int) -> None:
    """At the limit of the range, under loss scales that change. A sum of three fits as long as each
    rank gives a third of the range."""
    (dtype, codec), net = case, network(loss, seed)
    most = LARGEST[dtype] * size / (1 if op == "avg" else 3.1)
    produced, delivered = np.zeros(COUNT), np.zeros(COUNT)
    for number, scale in enumerate((1.0, 1.0, 2.0, 0.5, 0.5), 1):
        held = gradients(dtype, most, seed + number)
        produced += np.sum([numbers(part, dtype) for part in held], axis=0) / scale
        net.submit_all(
            number,
            held,
            dtype=dtype,
            op=op,
            max_loss=0.2 if loss else 0.0,
            name=NAME,
            codec=codec,
            scale=scale,
        )
        net.run()
        assert len({part.tobytes() for part in held}) == 1
        assert np.isfinite(widen(held[0], dtype)).all()
        ranks = WORLD if op == "avg" else 1
        delivered += numbers(held[0], dtype) * ranks / scale
    rounding = {"float16": 2.0**-10, "bfloat16": 2.0**-7}.get(dtype, 2.0**-23)
    apart = np.abs(delivered + waiting(net, dtype, 1.0) - produced)
    # of results, each rounded once to the dtype; residuals add nothing to it
    assert apart.max() <= 10 * WORLD * rounding * LARGEST[dtype] * size / 64


@pytest.mark.parametrize("dtype", sorted(NARROW))
def test_16_bit_contributions_and_residuals_are_what_was_given_in(dtype: str) -> None:
    """One rank contributes, so its contributions are the sums: nothing is rounded but by them, and
    what is there and what waits is what was given in, bit by bit."""
    net = network(0.2, 5)
    produced, delivered = [Fraction(0)] * COUNT, [Fraction(0)] * COUNT
    for number in range(1, 7):
        parts = gradients(dtype, 1.0, number)
        parts[1][:], parts[2][:] = 0, 0
        for at, value in enumerate(widen(parts[0], dtype).tolist()):
            produced[at] += Fraction(value)
        net.submit_all(number, parts, dtype=dtype, max_loss=0.3, name=NAME)
        net.run()
        for at, value in enumerate(widen(parts[0], dtype).tolist()):
            delivered[at] += Fraction(value)
    for hole in net.accounts[0].residuals.holes():
        for low, values in spans(hole, 2):
            for at, value in enumerate(values.tolist(), low):
                delivered[at] += Fraction(value)
    assert sum(net.done(0)[number].stats.waived for number in range(1, 7))
    off = [abs(float(a - b)) for a, b in zip(produced, delivered, strict=True)]
    assert max(off) <= 2.0**-22  # of float32, in which a gradient and a residual are added


def test_what_was_waived_at_the_limit_of_float16_comes_back_below_it() -> None:
    """A gradient scaler skips no step, and what was waived comes back when there is room."""
    net, top = network(0.1, 3), 60_000.0
    total = np.zeros(COUNT)
    for number in range(1, 11):
        parts = [np.full(COUNT, top if number < 6 else 1000.0, np.float16) for _ in range(WORLD)]
        net.submit_all(number, parts, dtype="float16", op="avg", max_loss=0.2, name=NAME)
        net.run()
        assert np.isfinite(parts[0]).all()
        total += parts[0].astype(float) * WORLD
    total += waiting(net, "float16", 1.0) * 64
    np.testing.assert_allclose(total, WORLD * (5 * top + 5 * 1000.0), rtol=2e-3)


@pytest.mark.parametrize("dtype", sorted(LARGEST))
def test_what_hosts_pass_on_of_an_average_fits(dtype: str) -> None:
    """Between hosts it is a part of the sum of a host's ranks, which itself need not fit."""
    hosts = ((0, 1, 2), (3,))
    link, top = SimLink(), LARGEST[dtype]
    net = SimNetwork(4, link, segment_size=64, chunk_segments=80, hosts=hosts)
    parts = [narrow(np.full(500, top, wide(dtype)), dtype) for _ in range(4)]
    for part in parts:
        part[100:] = narrow(np.full(400, 1.5, wide(dtype)), dtype)
    build = partial(hierarchical, hosts=hosts, size=parts[0].nbytes, chunk_bytes=64 * 80)
    for rank, part in enumerate(parts):
        net.submit(rank, 1, part, dtype=dtype, op="avg", program=build(rank))
    net.run()
    for part in parts:
        np.testing.assert_allclose(widen(part, dtype)[:100], top, rtol=1e-6)
        assert (widen(part, dtype)[100:] == 1.5).all()


@pytest.mark.parametrize("dtype", ["int8", "int32", "bool"])
def test_of_integers_nothing_is_waived(dtype: str) -> None:
    """None of them is small, so a bounded policy loses none, and a sum wraps as an exact one."""
    net = network(0.1, 2)
    parts = [np.full(COUNT, 100, STORAGE[dtype]) for _ in range(WORLD)]
    net.submit_all(1, parts, dtype=dtype, max_loss=0.3, name=NAME)
    net.run()
    with np.errstate(over="ignore"):
        expected = parts[0].dtype.type(True) if dtype == "bool" else np.array(300).astype(dtype)
    assert (parts[0] == expected).all()
    assert not any(accounts.residuals.size for accounts in net.accounts)
