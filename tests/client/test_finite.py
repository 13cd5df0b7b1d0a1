"""What the client computes by itself of finite values is finite, and nothing of it is lost."""

from fractions import Fraction

import pytest
import torch

from dlcp_client.gossip.codecs import BF16, Codec, TopK, rounded
from dlcp_client.gossip.exchange import _difference, _moved
from dlcp_client.guard.gradient_error import GradientError, sums
from dlcp_client.hooks.resumed_gradients import add_within
from dlcp_client.low_rank.products import _scaled

HALF = (torch.float16, torch.bfloat16)
FLOATS = (*HALF, torch.float32, torch.float64)
THIRD = {1: Fraction(1, 3), 2: Fraction(1, 3)}


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_carried_residual_is_added_as_far_as_it_fits(dtype: torch.dtype) -> None:
    top = torch.finfo(dtype).max
    gradient = torch.tensor([top, top / 2, -top, 1.0, torch.inf], dtype=dtype)
    more = torch.tensor([top, top / 4, -top / 2, 2.0, 3.0], dtype=dtype)
    wide = torch.promote_types(dtype, torch.float32)
    rest = add_within(gradient, more.to(wide))
    assert gradient[[0, 2, 3, 4]].tolist() == [top, -top, 3.0, torch.inf]
    assert rest.dtype == wide
    assert rest[[0, 2, 4]].tolist() == more.to(wide)[[0, 2, 4]].tolist()
    assert abs(float(rest[1])) <= top * 2.0**-9 and not rest[3]


@pytest.mark.parametrize("dtype", HALF)
def test_digits_that_a_carried_residual_has_more_remain(dtype: torch.dtype) -> None:
    gradient, more = torch.ones(4, dtype=dtype), torch.full((4,), 2.0**-15)
    rest = add_within(gradient, more)
    assert (gradient == 1).all() and (rest == more).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_neighbours_at_both_ends_of_the_range_meet_between(dtype: torch.dtype) -> None:
    top = torch.finfo(dtype).max
    mine, other = torch.tensor([-top, 1.0], dtype=dtype), torch.tensor([top, 4.0], dtype=dtype)
    wide = torch.promote_types(dtype, torch.float32)
    mine, other = mine.to(wide), other.to(wide)
    found = _moved(mine, mine, {1: other, 2: other}, THIRD)
    torch.testing.assert_close(found, torch.tensor([top / 3, 3.0], dtype=wide))
    assert torch.isfinite(rounded(found, dtype)).all()
    assert _difference(other, mine).tolist() == (
        [2 * top, 3.0]
        if dtype in HALF[:1]
        else [torch.finfo(wide).max if 2 * top > torch.finfo(wide).max else 2 * top, 3.0]
    )


@pytest.mark.parametrize("codec", [BF16(), TopK(0.5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_estimates_come_to_any_finite_value(codec: Codec, dtype: torch.dtype) -> None:
    top = torch.finfo(dtype).max
    estimate = torch.tensor([-top, 1e38, top, 0.5], dtype=dtype)
    wanted = torch.tensor([top, top, -top, 0.25], dtype=dtype)
    for _ in range(4):
        message = codec.encode(_difference(wanted, estimate))
        codec.add(message, estimate)
        assert torch.isfinite(estimate).all()
    if dtype is torch.float32:
        torch.testing.assert_close(estimate, wanted, rtol=1e-2, atol=1e-2)


def test_what_is_no_number_stays_none() -> None:
    values = torch.tensor([torch.nan, torch.inf, -torch.inf, 1e39], dtype=torch.float64)
    found = rounded(values, torch.float32)
    assert found[0].isnan() and found[1:].tolist() == [
        torch.inf,
        -torch.inf,
        torch.finfo(torch.float32).max,
    ]


@pytest.mark.parametrize("size", [1e30, 1.0, 1e-44, 0.0])
def test_directions_are_scaled_by_a_power_of_two(size: float) -> None:
    right = torch.tensor([[1.0, -0.3], [0.7, 0.0]]) * size
    found = _scaled(right)
    assert found.abs().max() <= 1
    factor = found[0, 0] / right[0, 0] if size else torch.tensor(1.0)
    assert torch.frexp(factor).mantissa == 0.5 or not size
    assert torch.equal(found, right * factor)


def test_squares_beyond_float64_are_an_overflow_for_the_guard() -> None:
    row = sums(torch.full((3,), 1e200, dtype=torch.float64), torch.ones(3, dtype=torch.float64))
    assert row.tolist() == [0, 0, 0, 0, 1]
    assert GradientError.of(row).overflow
