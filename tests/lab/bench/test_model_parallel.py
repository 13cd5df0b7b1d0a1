"""Rows and verdicts of `bench fused --model-parallel`, and the waits of its products."""

import time
from typing import Any

import torch

from dlcp_lab.bench.compiled_rank import paced
from dlcp_lab.bench.model_parallel import HEADER, cells, judge, rows_of
from dlcp_lab.bench.model_parallel_rank import PacedProducts


def ranks(seconds: float, digests: str = "aa", total: float = 5.0) -> list[dict[str, Any]]:
    """Two ranks in one block: the second is slower by 1 s."""
    return [
        {"times": [seconds + rank], "cpu": 0.5, "digest": digest, "sum": total, "size": 10.0}
        for rank, digest in enumerate(digests)
    ]


def test_rows_compare_medians_of_the_slowest_rank() -> None:
    found = {"gloo": [ranks(3.0)], "dlcp": [ranks(2.0)], "pieces": [ranks(1.0)]}
    rows = {row.way: row for row in rows_of(1 << 20, 0.5, 0.5, found)}
    assert rows["pieces"].over == {"gloo": 2.0, "dlcp": 1.5}
    assert rows["gloo"].over == {"dlcp": 0.75}
    assert (rows["pieces"].of_bound, rows["pieces"].cpu) == (0.5, 1.0)
    assert len(cells(rows["pieces"])) == len(HEADER)


def test_results_are_compared_among_ranks_and_ways() -> None:
    same = {"gloo": [ranks(1.0)], "pieces": [ranks(1.0, "bb", 5.0 + 1e-6)]}
    assert judge(1 << 20, 1.0, same).verdict == "held"
    apart = judge(1 << 20, 1.0, {"gloo": [ranks(1.0)], "pieces": [ranks(1.0, total=5.1)]})
    assert apart.detail == "pieces: differs by 1.0e-02"
    two = judge(1 << 20, 1.0, {"gloo": [ranks(1.0, "ab")], "pieces": [ranks(1.0)]})
    assert two.detail == "gloo: 2 results"


def test_products_of_operators_wait_by_their_size() -> None:
    a, b, out = torch.ones(3, 2), torch.ones(2, 4), torch.empty(3, 4)
    before = torch.mm
    begin = time.monotonic()
    with paced(0.001):
        torch.mm(a, b, out=out)
        assert torch.equal(torch.addmm(torch.zeros(4), a, b), out)
    assert time.monotonic() - begin >= 2 * 24 * 0.001
    assert torch.mm is before


def test_products_wait_in_proportion_to_their_rows() -> None:
    a, b, out = torch.ones(3, 2), torch.ones(2, 4), torch.empty(3, 4)
    begin = time.monotonic()
    with PacedProducts(0.01):
        torch.mm(a, b, out=out)
        assert torch.equal(a @ b, out)
        a + a
    assert time.monotonic() - begin >= 0.06
