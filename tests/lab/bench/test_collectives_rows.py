"""From samples of every collective to rows, and what their calls expect."""

from typing import Any

import pytest
import torch

from dlcp_lab.bench.collectives import COLLECTIVES, HALVES, factor, rows_of, verdicts
from dlcp_lab.bench.collectives_rank import CASES, CollectiveProblem

MB = 10**6


def ranks(*pairs: tuple[float, float], wrong: int = 0) -> list[dict[str, Any]]:
    """Of each rank: seconds of one operation by dlcpd and by Gloo."""
    return [
        {
            "dlcpd": {"times": [ours], "wrong": wrong, "cpu": ours / 4},
            "gloo": {"times": [theirs], "wrong": 0, "cpu": theirs / 4},
        }
        for ours, theirs in pairs
    ]


def test_the_slowest_rank_counts_and_ratios_are_of_pairs() -> None:
    ours, theirs = rows_of("broadcast", MB, ranks((1.0, 1.0), (2.0, 3.0)))
    assert (ours.transport, ours.time.p50, theirs.time.p50) == ("dlcpd", 2.0, 3.0)
    assert ours.ratio is not None and ours.ratio.p50 == 1.5
    assert theirs.ratio is None
    assert (ours.cpu, theirs.cpu) == (0.75, 1.0), "of all ranks"
    assert ours.bus_bandwidth == pytest.approx(0.0005)


@pytest.mark.parametrize(
    ("collective", "expected"),
    [
        ("all_reduce", 1.5),
        (HALVES, 1.5),
        ("reduce_scatter", 0.75),
        ("all_to_all", 0.75),
        ("reduce", 1.0),
    ],
)
def test_bus_bandwidths_are_those_of_nccl_tests(collective: str, expected: float) -> None:
    assert factor(collective, 4) == expected


def test_a_slower_operation_and_a_wrong_one_are_said() -> None:
    rows = list(rows_of("gather", 1 << 20, ranks((2.0, 1.0), (2.0, 1.0), wrong=3)))
    assert list(verdicts(rows)) == [
        "Gloo is faster in: gather 1M",
        "WRONG RESULT of dlcpd: gather of 1M, 6 elements",
    ]


def test_the_cpu_time_of_both_halves_is_compared_with_an_all_reduce_of_their_size() -> None:
    rows = [
        *rows_of("all_reduce", 1 << 20, ranks((2.0, 2.0), (2.0, 2.0))),
        *rows_of(HALVES, 1 << 20, ranks((2.5, 2.5), (2.5, 2.5))),
        *rows_of(HALVES, 1 << 21, ranks((3.0, 3.0), (3.0, 3.0))),
    ]
    assert list(verdicts(rows)) == [
        f"1M: {HALVES} take 1.25 times the CPU time of an all_reduce over dlcpd"
    ]


def test_every_collective_that_can_be_asked_for_has_a_case() -> None:
    assert tuple(CASES) == COLLECTIVES


def test_what_the_calls_must_give() -> None:
    one = CollectiveProblem(1, [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0])])

    def expected(name: str) -> list[float] | None:
        value = CASES[name].expected(one)
        return None if value is None else value.tolist()

    assert expected("all_reduce") == expected(HALVES) == [4.0, 7.0]
    assert expected("reduce_scatter") == [7.0]
    assert expected("all_gather") == [1.0, 3.0]
    assert expected("broadcast") == expected("send_receive") == [1.0, 2.0]
    assert expected("scatter") == [2.0]
    assert expected("all_to_all") == [2.0, 5.0]
    assert expected("reduce") is expected("gather") is expected("barrier") is None
