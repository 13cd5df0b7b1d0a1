"""Rows and verdicts of `bench spmd`."""

from typing import Any

import pytest

from dlcp_lab.bench.spmd import CASES
from dlcp_lab.bench.spmd_rank import CASES as KNOWN
from dlcp_lab.bench.spmd_rows import (
    HEADER,
    SpmdRow,
    by_key,
    cells,
    claims,
    honesty,
    judge,
    rows_of,
)


def blocks(way: str, *times: float, rank: int, loss: float = 1.0) -> list[dict[str, Any]]:
    """A block for each time; the second rank is slower by 1 s and saves more."""
    return [
        {
            "case": "data",
            "backend": "gloo",
            "way": way,
            "times": [time + rank],
            "work": 0.25,
            "cpu": time / 4,
            "saved": 8 + rank,
            "loss": loss,
            "collectives": None,
            "reductions": 3,
        }
        for time in times
    ]


def rows(**losses: float) -> dict[str, SpmdRow]:
    ranks = [
        blocks("spmd", 1.0, 3.0, 2.0, rank=rank) + blocks("ddp", 3.0, rank=rank, **losses)
        for rank in range(2)
    ]
    return {row.way: row for row in rows_of(by_key(ranks))}


def test_the_slowest_rank_counts_and_cpu_is_that_of_all_ranks() -> None:
    made = rows()
    assert made["spmd"].samples == [2.0, 4.0, 3.0] and made["spmd"].cpu == 1.0
    assert (made["ddp"].over, made["ddp"].cpu_over) == (0.75, 1.0 / 1.5)
    assert (made["spmd"].waits, made["spmd"].saved) == (2.75, 9)
    assert all(len(cells(row)) == len(HEADER) for row in made.values())
    assert not list(honesty(list(made.values())))


def test_a_case_without_a_gain_is_said() -> None:
    ranks = [blocks("spmd", 1.0, rank=0) + blocks("ddp", 1.0, rank=0)]
    said = "no gain of spmd in case data over gloo: 1.00 of the time of ddp"
    assert list(honesty(rows_of(by_key(ranks)))) == [said]


def test_cpu_is_judged_and_the_time_of_a_step_is_not() -> None:
    ranks = [blocks("spmd", 4.0, rank=0) + blocks("ddp", 3.0, rank=0)]
    said = [one.line() for one in claims(rows_of(by_key(ranks)), emulated=True)]
    assert said == [
        "FALLS SHORT  data over gloo: CPU of spmd / ddp: 1.33 <= 1.05",
        "holds        data over gloo: reductions: 3 <= 4",
    ]
    for block in ranks[0]:
        block["cpu"] = 1.0
    assert all(one.holds for one in claims(rows_of(by_key(ranks)), emulated=True))


def test_space_is_judged_against_one_process_and_on_a_network_against_gathering() -> None:
    ranks = [blocks("spmd", 2.0, rank=0) + blocks("alone", 1.8, rank=0)]
    ranks[0] += blocks("gather", 9.0, rank=0)
    for block in ranks[0]:
        block["case"] = "space"
    found = rows_of(by_key(ranks))
    here = {one.what.partition(": ")[2]: one.holds for one in claims(found, emulated=False)}
    assert here == {"CPU efficiency": True, "activations of spmd / alone": False}
    assert [one.holds for one in claims(found, emulated=True)] == [True, False, False]


def test_ranks_that_each_do_all_the_work_count_as_one() -> None:
    """CPU of two ranks: 2 x 1 s for the divided program, and 1.8 s for each that is alone."""
    ranks = [blocks("spmd", 1.0, rank=at) + blocks("alone", 1.8, rank=at) for at in range(2)]
    for block in (*ranks[0], *ranks[1]):
        block["case"] = "space"
    efficiency = claims(rows_of(by_key(ranks)), emulated=False)[0]
    assert efficiency.value == pytest.approx(0.9) and efficiency.holds


def test_ways_that_learn_different_things_break_a_promise() -> None:
    assert judge(list(rows().values())).verdict == "held"
    wrong = judge(list(rows(loss=1.002).values()))
    assert wrong.verdict == "BROKEN" and "loss 1.00200 of ddp over gloo" in wrong.detail


def test_every_case_that_can_be_asked_for_is_known() -> None:
    assert tuple(KNOWN) == CASES
    assert all(next(iter(ways)) == "spmd" for ways in KNOWN.values())
