"""PowerSGD: replicas stay equal, nothing is lost for ever, and what is no number arrives."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dlcp_client import Guard, PowerSGD, bounded, exact
from dlcp_client.low_rank import checked_low_rank
from dlcp_client.low_rank.products import _orthonormal, _product
from dlcpd.contract.errors import BadConfig
from tests.client import low_rank_ranks
from tests.client.low_rank_ranks import OVERFLOW, STEPS, WARMUP, given
from tests.client.test_ddp import on_hosts


def test_a_training_sends_little_and_replicas_are_equal(tmp_path: Path) -> None:
    ranks = on_hosts(low_rank_ranks.trained, tmp_path)
    assert np.array_equal(ranks[0]["weights"], ranks[1]["weights"])
    for rank in ranks:
        assert 0 < rank["apart"] < 0.01
        whole, last = rank["sent"][WARMUP - 1], rank["sent"][-1]
        assert rank["sent"][WARMUP:] == [last] * (STEPS - WARMUP)
        assert last < whole / 10


def test_what_was_put_in_comes_out_or_waits(tmp_path: Path) -> None:
    """Also of a convolution in another memory format; a matrix that overflows leaves nothing."""
    ranks = on_hosts(low_rank_ranks.conserved, tmp_path)
    for which in range(3):
        steps = [number for number in range(7) if number != OVERFLOW or which != 1]
        results = [[rank["results"][number][which] for number in steps] for rank in ranks]
        assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))
        produced = sum(given(rank, n)[which].double() for rank in range(2) for n in steps)
        total = 2 * np.sum(results[0], axis=0, dtype=float)
        if which < 2:
            total += sum(rank["missed"][which].astype(float) for rank in ranks).reshape(total.shape)
        np.testing.assert_allclose(total, produced, rtol=0, atol=1e-4)
    for rank in ranks:
        first, second, bias = rank["results"][OVERFLOW]
        assert np.isfinite(first).all()
        assert np.isfinite(bias).all()
        assert not np.isfinite(second[3, 5])
        assert all(np.isfinite(missed).all() for missed in rank["missed"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rank": 0}, "rank=0 is out of range: use a whole number, 1..64"),
        ({"rank": 2.0}, "rank=2.0"), ({"rank": 65}, "rank=65"),
        ({"least_ratio": 0.5}, "least_ratio=0.5 is out of range: use a number, 1 or more"),
        ({"least_ratio": float("nan")}, "least_ratio=nan"), ({"least_ratio": "2"}, "ratio='2'"),
    ],
)  # fmt: skip
def test_what_is_none_is_refused_by_field(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        PowerSGD(**options)


def test_what_it_does_not_go_with_is_refused() -> None:
    asked = PowerSGD()
    with pytest.raises(BadConfig, match=r"use exact\(\) without a codec"):
        checked_low_rank(asked, bounded())
    with pytest.raises(BadConfig, match=r"use exact\(\) without a codec"):
        checked_low_rank(asked, exact(codec="int8"))
    with pytest.raises(BadConfig, match="without guard="):
        checked_low_rank(asked, exact(), guard=Guard())
    with pytest.raises(BadConfig, match='with transport="dlcp" only'):
        checked_low_rank(asked, exact(), transport="auto")
    with pytest.raises(BadConfig, match=r"use PowerSGD\(rank=4\)"):
        checked_low_rank(4, exact())
    assert checked_low_rank(asked, exact()) is asked
    assert checked_low_rank(None, bounded()) is None


def test_matrices_that_gain_little_are_sent_as_they_are() -> None:
    asked = PowerSGD(rank=4, least_ratio=2.0)
    assert asked.rank_of(100, 100) == 4
    assert asked.rank_of(16, 16) == 4
    assert asked.rank_of(15, 16) == 0
    assert asked.rank_of(1, 10_000) == 0
    assert PowerSGD(rank=4, least_ratio=1).rank_of(3, 3000) == 0
    assert PowerSGD(rank=2).rank_of(1000, 8) == 2


def test_a_product_is_that_of_any_library_but_for_rounding() -> None:
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(n, 5, generator=generator) for n in (70, 30))
    torch.testing.assert_close(_product(left, right), left @ right.T)


def test_orthonormal_columns() -> None:
    left = torch.randn(40, 3, generator=torch.Generator().manual_seed(1))
    columns = _orthonormal(left)
    torch.testing.assert_close(columns.T @ columns, torch.eye(3))
    torch.testing.assert_close(columns @ (columns.T @ left), left)
    assert torch.isfinite(_orthonormal(torch.zeros(40, 3))).all()
    left[5, 1] = float("inf")
    assert torch.isnan(_orthonormal(left)).all()
