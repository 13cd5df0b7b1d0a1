"""Rows and verdicts of `bench fused`."""

from typing import Any

import pytest

from dlcp_lab.bench.fused import WAYS
from dlcp_lab.bench.fused_rank import WAYS as KNOWN
from dlcp_lab.bench.fused_rows import HEADER, FusedRow, cells, honesty, judge, rows_of


def ranks(*times: float, cpu: float = 0.5, digests: str = "aa") -> list[dict[str, Any]]:
    """Two ranks in one block: the second is slower by 1 s."""
    return [
        {"times": [time + rank for time in times], "cpu": cpu, "state": 8 - rank, "digest": digest}
        for rank, digest in enumerate(digests)
    ]


def rows(**options: float) -> dict[str, FusedRow]:
    found = {"gloo": [ranks(3.0, cpu=1.0), ranks(3.0, cpu=1.0)], "fused": [ranks(0.0), ranks(2.0)]}
    return {row.way: row for row in rows_of(1 << 20, found, **options)}


def test_the_slowest_rank_counts_and_cpu_is_that_of_all_ranks() -> None:
    made = rows(compute=1.5, line=1.0)
    assert made["fused"].samples == [1.0, 3.0]
    assert made["fused"].over == {"gloo": 2.0} and made["gloo"].over == {}
    assert (made["gloo"].cpu, made["fused"].cpu, made["fused"].cpu_ratio) == (2.0, 1.0, 0.5)
    assert (made["fused"].exposed, made["fused"].of_bound) == (0.5, 0.75)
    assert made["fused"].state == 8
    assert len(cells(made["fused"])) == len(HEADER)
    assert not list(honesty(list(made.values())))


def test_without_a_line_there_is_no_bound() -> None:
    assert rows(compute=0.0, line=0.0)["fused"].of_bound is None


def test_a_way_that_gains_nothing_is_said() -> None:
    found = {"gloo": [ranks(1.0)], "fused": [ranks(1.0)]}
    made = list(rows_of(1 << 20, found, compute=0.0, line=0.0))
    assert list(honesty(made)) == ["no gain of fused at 1M over gloo: 1.00"]


def test_different_weights_of_ranks_break_a_promise() -> None:
    assert judge(1 << 20, {"gloo": [ranks(1.0)]}).verdict == "held"
    wrong = judge(1 << 20, {"gloo": [ranks(1.0)], "fused": [ranks(1.0, digests="ab")]})
    assert wrong.verdict == "BROKEN" and wrong.detail == "fused: 2 sets of weights"


def test_every_way_that_can_be_asked_for_is_known() -> None:
    assert tuple(KNOWN) == WAYS


@pytest.mark.parametrize("missing", ["gloo", "fused"])
def test_a_way_that_was_not_asked_for_is_compared_with_none(missing: str) -> None:
    found = {"gloo": [ranks(1.0)], "fused": [ranks(1.0)]}
    del found[missing]
    [row] = rows_of(1 << 20, found, compute=0.0, line=0.0)
    assert row.over == {} and (row.cpu_ratio == 1.0) == (missing == "fused")
