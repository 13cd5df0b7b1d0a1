"""`bench codecs`: what its rows say, and what a codec costs."""

from typing import Any

import pytest

from dlcp_lab.bench.codecs import TRANSPORTS, row
from dlcp_lab.bench.codecs_cost import cost
from dlcp_lab.bench.training_rows import EXACT
from dlcp_lab.training.compressed import CODECS
from dlcp_lab.training.loop import REGISTER

Run = list[dict[str, Any]]


def run(score: float, sent: int, score_name: str = "accuracy") -> Run:
    """Two ranks."""
    classes = {name: {"sent": sent, "lost": 0, "marked": 0} for name in ("front", "bulk")}
    network = {"classes": classes, "paths": [], "news": {}}
    rank = {"task": "digits", "score_name": score_name, "score": score}
    return [rank | {"books": {"network": network}} for _ in range(2)]


def test_a_row_is_compared_with_exact() -> None:
    task = {EXACT: [run(0.9, 100), run(0.94, 100)], "int8": [run(0.9, 30), run(0.92, 40)]}
    one = row("int8", task)
    assert (one.task, one.codec, one.score) == ("digits", "int8", [0.9, 0.92])
    assert (one.worse, one.noise) == pytest.approx((0.01, 0.04))
    assert one.datagrams == pytest.approx(0.35)
    assert (row(EXACT, task).worse, row(EXACT, task).datagrams) == (0, 1)


def test_of_a_loss_less_is_better() -> None:
    task = {EXACT: [run(2.0, 1, "test loss")], "int8": [run(1.9, 1, "test loss")]}
    assert row("int8", task).worse == pytest.approx(-0.1)


def test_every_transport_can_be_registered() -> None:
    assert set(TRANSPORTS) <= set(REGISTER)


def test_costs_are_of_the_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlcp_lab.bench.codecs_cost.VALUES", 1 << 16)
    found = {name: cost(name) for name in CODECS}
    assert found["bf16"].ratio == 0.5
    assert found["topk:0.01"].ratio < 0.016
    assert all(one.encode > 0 and one.decode >= 0 for one in found.values())
