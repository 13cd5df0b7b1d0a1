"""Each promise that the demo shows: held by a clean record, broken by each harm."""

from collections.abc import Callable
from typing import Any

import pytest

from dlcp_lab.demo.command import by_task, honesty, judge, tables
from dlcp_lab.report.checks import OPEN, broken
from dlcp_lab.training.learning import losses_at_marks

Task = dict[str, list[dict[str, Any]]]


def run(transport: str, books: dict[str, Any] | None) -> list[dict[str, Any]]:
    return [
        {"task": "t", "transport": transport, "score_name": "accuracy", "score": 0.9,
         "losses": [2.0 - step / 20 for step in range(20)], "times": [0.01] * 20,
         "digest": "d" * 16, "books": dict(books) if books else None}
        for _ in range(2)
    ]  # fmt: skip


def clean() -> Task:
    nothing = {"sent": 1000, "repaired": 5, "lost": 0, "given_up": 0, "returned": 0,
               "held_bytes": 0, "injected": 9,
               "network": {"classes": {"front": {"sent": 70, "lost": 3, "marked": 1}},
                           "paths": [40, 60], "news": {}}}  # fmt: skip
    some = nothing | {"lost": 8, "given_up": 8, "returned": 6, "held_bytes": 1408 + 64}
    return {
        "gloo": run("gloo", None), "exact": run("exact", nothing), "bounded": run("bounded", some),
    }  # fmt: skip


def test_a_clean_record_holds() -> None:
    checks = list(judge(clean()))
    assert broken(checks) == []
    assert {check.promise for check in checks} == {"P1", "P2", "P3", "P4"}


def other_training(task: Task) -> None:
    for rank in task["exact"]:
        rank["losses"] = [loss * 1.05 for loss in rank["losses"]]


def replicas_differ(task: Task) -> None:
    task["bounded"][1]["digest"] = "e" * 16


def exact_gives_up(task: Task) -> None:
    for rank in task["exact"]:
        rank["books"] |= {"given_up": 1, "lost": 1}


def beyond_the_bound(task: Task) -> None:
    for rank in task["bounded"]:
        rank["books"] |= {"given_up": 11, "lost": 11, "returned": 11, "held_bytes": 0}


def books_disagree(task: Task) -> None:
    task["bounded"][0]["books"]["lost"] -= 1


def vanished(task: Task) -> None:
    task["bounded"][0]["books"]["held_bytes"] = 0


def too_much_held(task: Task) -> None:
    task["bounded"][0]["books"]["held_bytes"] = 2 * 1408 + 1


def learned_less(task: Task) -> None:
    for rank in task["bounded"]:
        rank["losses"] = [loss * 1.2 for loss in rank["losses"]]


@pytest.mark.parametrize(
    ("harm", "promise"),
    [
        (other_training, "P1"),
        (replicas_differ, "P2"),
        (exact_gives_up, "P3"),
        (beyond_the_bound, "P3"),
        (books_disagree, "P3"),
        (vanished, "P4"),
        (too_much_held, "P4"),
        (learned_less, "P4"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_each_harm_breaks_its_promise(harm: Callable[[Task], None], promise: str) -> None:
    task = clean()
    harm(task)
    assert promise in broken(list(judge(task)))


def test_a_bounded_run_without_loss_is_not_judged() -> None:
    task = clean()
    for rank in task["bounded"]:
        rank["books"] |= {"given_up": 0, "lost": 0, "returned": 0, "held_bytes": 0}
    assert [c.promise for c in judge(task) if c.verdict == OPEN] == ["P3"]


def test_losses_are_compared_at_equal_steps() -> None:
    [first, *_, last] = losses_at_marks(run("gloo", None))
    assert first == pytest.approx((2.0 - 4 / 20 + 2.0 - 3 / 20) / 2)
    assert last == pytest.approx((2.0 - 19 / 20 + 2.0 - 18 / 20) / 2)


def test_no_gain_is_said_and_a_gain_is_not() -> None:
    task = clean()
    assert list(honesty({"t": task})) == []
    for rank in task["exact"]:
        rank["times"] = [0.02] * 20
    [line] = honesty({"t": task})
    assert "t over exact" in line
    assert "0.50" in line


def test_tables_show_every_run_and_shout_about_replicas() -> None:
    task = clean()
    replicas_differ(task)
    runs = [task[name] for name in ("gloo", "exact", "bounded")]
    assert list(by_task(runs)) == ["t"]
    text = "\n".join(tables(runs))
    assert text.count("accuracy") == 3
    assert "2 DIFFERENT" in text
    assert "returned" in text
    assert "front   140     6       2" in text  # two ranks
    assert "t over bounded: 2 paths carried 40.0%, 60.0%" in text
