"""Each promise that the demo shows: held by a clean record, broken by each harm."""

from collections.abc import Callable
from typing import Any

import pytest

from dlcp_lab.demo.full import honesty, other_order, tables
from dlcp_lab.demo.judge import SEGMENT, Trained, by_task, judge
from dlcp_lab.report.checks import OPEN, broken
from dlcp_lab.training.learning import losses_at_marks


def run(
    transport: str, books: dict[str, Any] | None = None, *, seed: int = 0, last: float = 1.0
) -> list[dict[str, Any]]:
    """A training of two ranks whose loss falls evenly from 2 to about `last`."""
    return [
        {
            "task": "t",
            "transport": transport,
            "seed": seed,
            "score_name": "accuracy",
            "score": 0.9,
            "losses": [2.0 - step / 20 * (2.0 - last) for step in range(20)],
            "times": [0.01] * 20,
            "digest": "d" * 16,
            "books": dict(books) if books else None,
        }
        for _ in range(2)
    ]


def clean() -> Trained:
    nothing = {
        "sent": 1000,
        "retransmitted": 5,
        "lost": 0,
        "waived": 0,
        "reapplied": 0,
        "held_bytes": 0,
        "injected": 9,
        "network": {
            "classes": {"front": {"sent": 70, "lost": 3, "marked": 1}},
            "paths": [40, 60],
            "news": {},
        },
    }
    some = nothing | {"lost": 8, "waived": 8, "reapplied": 6, "held_bytes": 1408 + 64}
    runs = {
        "gloo": run("gloo"),
        "reference": run("reference"),
        "exact": run("exact", nothing),
        "bounded": run("bounded", some),
    }
    return Trained(runs, [run("gloo", seed=1, last=1.02), run("gloo", seed=2, last=0.98)])


def test_a_clean_record_holds() -> None:
    checks = list(judge(clean()))
    assert broken(checks) == []
    assert {check.promise for check in checks} == {"P1", "P2", "P3", "P4"}


def other_parameters(task: Trained) -> None:
    for rank in task.runs["exact"]:
        rank["digest"] = "e" * 16


def other_reference(task: Trained) -> None:
    task.runs["reference"][1]["digest"] = "e" * 16


def replicas_differ(task: Trained) -> None:
    task.runs["bounded"][1]["digest"] = "e" * 16


def exact_waives(task: Trained) -> None:
    for rank in task.runs["exact"]:
        rank["books"] |= {"waived": 1, "lost": 1}


def beyond_the_bound(task: Trained) -> None:
    for rank in task.runs["bounded"]:
        rank["books"] |= {"waived": 11, "lost": 11, "reapplied": 11, "held_bytes": 0}


def books_disagree(task: Trained) -> None:
    task.runs["bounded"][0]["books"]["lost"] -= 1


def vanished(task: Trained) -> None:
    task.runs["bounded"][0]["books"]["held_bytes"] = 0


def too_much_held(task: Trained) -> None:
    task.runs["bounded"][0]["books"]["held_bytes"] = 2 * SEGMENT + 1


def learned_less(task: Trained) -> None:
    for rank in task.runs["bounded"]:
        rank["losses"] = [loss * 1.25 for loss in rank["losses"]]


@pytest.mark.parametrize(
    ("harm", "promise"),
    [
        (other_parameters, "P1"),
        (other_reference, "P1"),
        (replicas_differ, "P2"),
        (exact_waives, "P3"),
        (beyond_the_bound, "P3"),
        (books_disagree, "P3"),
        (vanished, "P4"),
        (too_much_held, "P4"),
        (learned_less, "P4"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_each_harm_breaks_its_promise(harm: Callable[[Trained], None], promise: str) -> None:
    task = clean()
    harm(task)
    assert promise in broken(list(judge(task)))


def test_a_bounded_run_without_loss_is_not_judged() -> None:
    task = clean()
    for rank in task.runs["bounded"]:
        rank["books"] |= {"waived": 0, "lost": 0, "reapplied": 0, "held_bytes": 0}
    assert [c.promise for c in judge(task) if c.verdict == OPEN] == ["P3"]


def test_gloo_may_end_elsewhere_and_is_told_how_far() -> None:
    task = clean()
    for rank in task.runs["gloo"]:
        rank["losses"] = [loss * 1.25 for loss in rank["losses"]]
        rank["digest"] = "f" * 16
    assert "P1" not in broken(list(judge(task)))
    [line] = other_order([task])
    assert "losses of t by up to 25.000%" in line


@pytest.mark.parametrize(("worse", "verdict"), [(1.13, "held"), (1.15, "BROKEN")])
def test_the_seeds_of_the_run_say_what_learning_may_lose(worse: float, verdict: str) -> None:
    task = clean()  # Gloo's seeds end at 1.056, 1.075 and 1.094: 1.225 is their limit
    for rank in task.runs["bounded"]:
        rank["losses"] = [loss * worse for loss in rank["losses"]]
    assert [check.verdict for check in judge(task)][-1] == verdict


def test_learning_is_not_judged_where_seeds_differ_more_than_they_learn() -> None:
    task = clean()
    task.others[:] = [run("gloo", seed=1, last=1.9), run("gloo", seed=2, last=1.0)]
    last = list(judge(task))[-1]
    assert (last.promise, last.verdict) == ("P4", OPEN)
    assert "too few steps to tell" in last.detail


def test_runs_are_told_apart_by_task_transport_and_seed() -> None:
    task = clean()
    other = [[{**rank, "task": "u"} for rank in run("gloo")]]
    runs = [*task.runs.values(), *other, *task.others]
    first, second = by_task(runs)
    assert (first.name, list(first.runs)) == ("t", ["gloo", "reference", "exact", "bounded"])
    assert [one[0]["seed"] for one in first.others] == [1, 2]
    assert (second.name, second.others) == ("u", [])


def test_losses_are_compared_at_equal_steps() -> None:
    [first, *_, last] = losses_at_marks(run("gloo"))
    assert first == pytest.approx((2.0 - 4 / 20 + 2.0 - 3 / 20) / 2)
    assert last == pytest.approx((2.0 - 19 / 20 + 2.0 - 18 / 20) / 2)


def test_no_gain_is_said_and_a_gain_is_not() -> None:
    task = clean()
    assert list(honesty([task])) == []
    for rank in task.runs["exact"]:
        rank["times"] = [0.02] * 20
    [line] = honesty([task])
    assert "t over exact" in line
    assert "0.50" in line


def test_tables_show_every_run_and_shout_about_replicas() -> None:
    task = clean()
    replicas_differ(task)
    text = "\n".join(tables([*task.runs.values(), *task.others]))
    assert text.count("accuracy") == 6
    assert "gloo, seed 2" in text
    assert "2 DIFFERENT" in text
    assert "reapplied" in text
    assert "front   140     6       2" in text  # two ranks
    assert "t over bounded: 2 paths carried 40.0%, 60.0%" in text
