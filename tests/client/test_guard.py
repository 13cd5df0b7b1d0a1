"""The guard: the error that it reports is the real one, and what follows, follows on all ranks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dlcp_client import Guard, bounded, ddp, exact
from dlcp_client.guard import checked_guard
from dlcp_client.guard.gradient_error import GradientError, sums
from dlcpd.contract.errors import BadConfig
from dlcpd.ledger.contributions import Contributions, segments_of, step_of
from dlcpd.ledger.inputs import recorded
from dlcpd.ledger.reader import find, runs
from dlcpd.ledger.replay import ReplayVerdict, operations, program_of, replay
from tests.client import guard_ranks
from tests.client.guard_ranks import BOUND, STEPS, WARMUP
from tests.client.test_ddp import on_each_rank

LOSS = 0.1


def test_the_error_is_that_of_numpy_and_parts_add_up() -> None:
    exactly = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    bounded_ = exactly.clone()
    bounded_[100:200] = 0
    rows = [
        sums(b, s) for b, s in zip(bounded_.tensor_split(3), exactly.tensor_split(3), strict=True)
    ]
    error = GradientError.of(torch.stack(rows).sum(0))
    b, s = bounded_.double().numpy(), exactly.double().numpy()
    norm = np.linalg.norm
    assert error.relative == pytest.approx(norm(s - b) / norm(s), abs=1e-12)
    assert error.cosine == pytest.approx(s @ b / norm(s) / norm(b), abs=1e-12)
    assert (error.missing, error.exact) == pytest.approx((norm(s - b), norm(s)))
    assert not error.overflow


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_said_and_spoils_no_sum(bad: float) -> None:
    one, two = torch.ones(4), torch.ones(4)
    two[2] = bad
    for pair in ((one, two), (two, one), (two, two)):
        assert GradientError.of(sums(*pair) + sums(one, one)).overflow
        assert torch.isfinite(sums(*pair)).all()


def test_nothing_is_no_error_and_something_instead_of_nothing_is_one() -> None:
    zero, one = torch.zeros(4), torch.ones(4)
    assert GradientError.of(sums(zero, zero)) == GradientError(0.0, 1.0, 0.0, 0.0, overflow=False)
    assert GradientError.of(sums(one, zero)).relative == float("inf")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"every": 0}, "every=0 is not valid: use a whole number"),
        ({"every": 1.5}, "every=1.5"),
        ({"max_error": -1}, "max_error=-1 is not valid: use a fraction"),
        ({"max_error": float("nan")}, "max_error=nan"),
        (
            {"on_excess": "panic"},
            "on_excess='panic' is not known: use one of tighten, exact, stop, warn",
        ),
        ({"floor": 0.9}, "floor=0.9"),
    ],
)
def test_a_guard_that_is_none_is_refused_by_field(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        Guard(**options)


def test_a_guard_watches_bounded_policies_through_dlcpd_only() -> None:
    with pytest.raises(BadConfig, match="an exact policy has no loss to sample"):
        checked_guard(Guard(), exact())
    with pytest.raises(BadConfig, match='transport="auto" may use'):
        checked_guard(Guard(), bounded(), "auto")
    with pytest.raises(BadConfig, match="use Guard"):
        checked_guard(0.05, bounded())
    assert checked_guard(None, exact()) is None
    assert checked_guard(Guard(), exact(codec="int8")) == Guard()


@pytest.mark.parametrize("how", ["ddp", "cross_step"])
def test_weights_are_those_of_a_training_without_a_guard(tmp_path: Path, how: str) -> None:
    with_, without = (
        on_each_rank(guard_ranks.watched, tmp_path, 0.0, guard, how)
        for guard in ({"every": 2}, None)
    )
    for rank in (*with_, *without):
        assert np.array_equal(rank["weights"], without[0]["weights"])
    last = with_[0]["reports"][-1]
    assert last["samples"] == 2 and last["error"] == 0.0 and last["excesses"] == 0
    assert with_[0]["operations"] > without[0]["operations"]
    assert with_[0]["reports"] == with_[1]["reports"]


def test_the_error_reported_is_the_one_that_the_ledger_gives(tmp_path: Path) -> None:
    guard = {"every": 1, "max_error": 10.0, "on_excess": "stop"}
    ranks = on_each_rank(guard_ranks.watched, tmp_path, LOSS, guard)
    assert not ranks[0]["raised"]
    assert np.array_equal(ranks[0]["weights"], ranks[1]["weights"])
    reported = [r["error"] for r in ranks[0]["reports"][WARMUP:]]
    assert max(reported) > 1e-3
    [run] = runs(find([tmp_path]))
    found = replay(run)
    assert not found.different
    assert len(found.of(ReplayVerdict.REPRODUCED)) == len(found.verdicts) >= STEPS - WARMUP
    assert reported == pytest.approx(offline(run), abs=1e-6)


def offline(run: Any) -> list[float]:
    """The error of each step over its bounded operations, from inputs and masks alone."""
    contributions = {rank: Contributions(ledger, recorded) for rank, ledger in run.items()}
    steps: dict[int, list[tuple[float, ...]]] = {}
    for entries in operations(run).values():
        whole, lost = [], []
        for rank, entry in entries.items():
            program = program_of(entry.plan, rank)
            made = contributions[rank].make(entry, program)
            assert made is not None
            missing = np.zeros(len(made), np.uint8)
            for row in entry.ended.waived:
                span = step_of(entry, program, row, sent=True).span
                for segment in segments_of(row, step_of(entry, program, row, sent=True)).tolist():
                    low = span.start + segment * row.segment_size
                    high = min(low + row.segment_size, span.start + span.size)
                    missing[low:high] = made[low:high]
            whole.append(made.view(np.float32).astype(np.float64))
            lost.append(missing.view(np.float32).astype(np.float64))
        pair = tuple(float((np.sum(parts, axis=0) ** 2).sum()) for parts in (lost, whole))
        steps.setdefault(entry.ended.turn, []).append(pair)
    return [
        (sum(a for a, _ in pairs) / sum(b for _, b in pairs)) ** 0.5
        for _, pairs in sorted(steps.items())
    ]


@pytest.mark.parametrize(
    ("floor", "bounds"),
    [(0.04, [BOUND, BOUND / 2, BOUND / 4, 0.0]), (0.15, [BOUND, 0.0])],
)
def test_all_ranks_tighten_in_the_same_steps_and_then_are_exact(
    tmp_path: Path, floor: float, bounds: list[float]
) -> None:
    guard = {"every": 1, "max_error": 0.0, "on_excess": "tighten", "floor": floor}
    first, second = on_each_rank(guard_ranks.watched, tmp_path, LOSS, guard)
    assert first["reports"] == second["reports"]
    assert np.array_equal(first["weights"], second["weights"])
    seen = [report["bound"] for report in first["reports"]]
    assert seen[:WARMUP] == [BOUND] * WARMUP
    assert seen == sorted(seen, reverse=True) and seen[-1] < BOUND
    assert set(seen) <= set(bounds)
    [run] = runs(find([tmp_path]))  # what was waived has come back, at the latest when exact
    last = {e.plan.name: e for ledger in run.values() for e in ledger.entries}
    if seen[-2:] == [0.0, 0.0]:
        assert not any(entry.ended.waived for entry in last.values())
    assert not replay(run).different


def test_stop_stops_all_ranks(tmp_path: Path) -> None:
    guard = {"every": 1, "max_error": 0.0, "on_excess": "stop"}
    first, second = on_each_rank(guard_ranks.watched, tmp_path, LOSS, guard)
    assert first["raised"] == second["raised"]
    assert "GuardStopped: guard: in step" in first["raised"]
    assert "tighten the policy, or use exact()" in first["raised"]


def test_register_refuses_a_guard_before_anything_is_open(group_of_one: None) -> None:
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    with pytest.raises(BadConfig, match="no loss to sample"):
        ddp.register(net, guard=Guard())
