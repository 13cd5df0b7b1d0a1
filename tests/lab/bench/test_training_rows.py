"""`bench training`: the rule of equal quality, the bound, replicas, and where nothing is gained."""

from typing import Any

import pytest

from dlcp_client.hooks.rules import DEFAULT_WARMUP
from dlcp_lab.bench.training import Goodput
from dlcp_lab.bench.training_rows import (
    BOUNDED,
    CROSSED,
    EXACT,
    GLOO,
    LEARNING,
    SPEED,
    TRANSPORTS,
    WARMUP,
    TrainingRow,
    honesty,
    judge,
    learning,
    row,
    speed,
)
from dlcp_lab.report.checks import BROKEN, HELD, OPEN, Check
from dlcpd.cli import table

Run = list[dict[str, Any]]
Task = dict[str, list[Run]]


def training(transport: str, score: float, *, seconds: float = 1.0, **changes: Any) -> Run:
    """Two ranks, forty steps."""
    books = {"sent": 1000, "retransmitted": 20, "waived": 5}
    rank = {
        "task": "digits CNN",
        "transport": transport,
        "score_name": "accuracy",
        "losses": [1.0] * 40,
        "times": [seconds] * 40,
        "forwards": [0.01] * 40,
        "score": score,
        "digest": "aa",
        "books": None if transport == GLOO else books,
    }
    return [{**rank, **changes}, {**rank}]


def task(**scores: list[float]) -> Task:
    """Transports by name without its comma; 0.9 and 0.92 where nothing is said."""
    return {
        transport: [
            training(transport, score) for score in scores.get(transport.split()[-1], [0.9, 0.92])
        ]
        for transport in TRANSPORTS
    }


def check(found: Task, promise: str, what: str) -> Check:
    [one] = [c for c in judge(found) if c.promise == promise and f"{what}:" in c.what]
    return one


def test_all_is_well() -> None:
    assert {one.verdict for one in judge(task())} == {HELD}


@pytest.mark.parametrize(
    ("bounded", "verdict"),
    [([0.9, 0.92], HELD), ([0.88, 0.905], HELD), ([0.88, 0.88], BROKEN), ([0.99, 0.99], HELD)],
)
def test_quality_may_fall_by_the_noise_of_exact(bounded: list[float], verdict: str) -> None:
    assert check(task(bounded=bounded), "P4", BOUNDED).verdict == verdict


def test_of_a_loss_less_is_better() -> None:
    found = task(bounded=[0.95, 0.95])
    for runs in found.values():
        for run in runs:
            run[0]["score_name"] = "test loss"
    assert check(found, "P4", BOUNDED).verdict == BROKEN
    assert check(found, "P4", CROSSED).verdict == HELD


def test_one_seed_is_not_judged() -> None:
    found = task(gloo=[0.9], exact=[0.9], bounded=[0.1])
    assert check(found, "P4", BOUNDED).verdict == OPEN


def test_a_training_that_is_mostly_warm_up_is_not_judged() -> None:
    found = task(bounded=[0.1, 0.1])
    for run in found[EXACT]:
        run[0]["losses"] = [1.0] * 16
    one = check(found, "P4", BOUNDED)
    assert (one.verdict, one.detail) == (OPEN, "16 steps, of which the first 10 are exact")


def test_the_warm_up_is_that_of_register() -> None:
    assert WARMUP == DEFAULT_WARMUP


def test_equal_exact_runs_leave_one_digit_of_noise() -> None:
    one = 1 / 360
    assert check(task(exact=[0.9, 0.9], bounded=[0.9 - 0.9 * one] * 2), "P4", BOUNDED).verdict == (
        HELD
    )
    assert check(task(exact=[0.9, 0.9], bounded=[0.9 - 2 * one] * 2), "P4", BOUNDED).verdict == (
        BROKEN
    )


def test_the_bound_is_judged_by_run() -> None:
    found = task()
    found[BOUNDED][1] = training(
        BOUNDED, 0.9, books={"sent": 1000, "retransmitted": 0, "waived": 60}
    )  # with the other rank's 5: 3.3 %
    broken = check(found, "P3", BOUNDED)
    assert (broken.verdict, "seed 2: 3.25%" in broken.detail) == (BROKEN, True)


def test_replicas_apart_are_named() -> None:
    found = task()
    found[CROSSED][0][1]["digest"] = "bb"
    [one] = [c for c in judge(found) if c.promise == "P2"]
    assert one.verdict == BROKEN
    assert "cross-step, seed 1" in one.detail


def rows(**seconds: float) -> list[TrainingRow]:
    found = {
        transport: [training(transport, 0.9, seconds=seconds.get(transport.split()[-1], 1.0))]
        for transport in TRANSPORTS
    }
    beside = {GLOO: [20e6], EXACT: [40e6]}
    return [row(transport, found, beside.get(transport, [])) for transport in TRANSPORTS]


def test_where_nothing_is_gained_the_numbers_say_why() -> None:
    lines = list(honesty(rows(gloo=0.5)))
    assert len(lines) == 5
    assert "it carried 20.0 Mbit/s with Gloo, and 40.0 Mbit/s with dlcpd" in lines[0]
    assert "dlcpd retransmitted 2.00% of its segments" in lines[1]
    assert "only 0.50% of the segments were waived" in lines[3]
    assert "a forward pass takes 10 ms of a step of 1000 ms" in lines[4]


def test_where_all_is_gained_nothing_is_said() -> None:
    found = task()
    for transport, times in zip(TRANSPORTS, (4.0, 3.0, 2.0, 1.0), strict=True):
        found[transport] = [training(transport, 0.9, seconds=times)]
    assert not list(honesty([row(transport, found, []) for transport in TRANSPORTS]))


def test_tables_have_a_cell_for_each_column() -> None:
    found = rows()
    fast = table.render(SPEED, [speed(one) for one in found], left=2).splitlines()
    assert fast[2].split()[-4:] == ["1.00..1.00", "0.50%", "2.00%", "40.0"]
    learned = table.render(LEARNING, [learning(one) for one in found], left=2).splitlines()
    assert learned[1].split()[-3:] == ["0.9000..0.9000", "accuracy", "equal"]


class Flow:
    def __init__(self) -> None:
        self.lines: list[list[float]] = []

    def goodput(self) -> list[list[float]]:
        return self.lines


def test_goodput_is_told_apart_by_training() -> None:
    flow = Flow()
    seen = Goodput(flow)
    for where, line in (("a/gloo", 10.0), ("books", 20.0), ("a/exact", 40.0), ("b/gloo", None)):
        seen.note(where)
        if line is not None:
            flow.lines.append([line])
    seen.note("end")
    assert seen.means() == {"a/gloo": 15.0, "a/exact": 40.0}
