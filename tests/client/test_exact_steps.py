"""Exact steps among bounded ones: which they are, what they submit, and what is measured."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from dlcp_client import DaemonLost, Guard, bounded, exact
from dlcp_client.auto.calibration import STEPS, Calibration
from dlcp_client.guard.sampler import GuardSampler
from dlcp_client.hooks.buckets import PlacedGradient
from dlcp_client.hooks.exact_steps import BESIDE, EVERY, is_exact, is_timed
from dlcp_client.hooks.rules import EXACT_BELOW, GradientRequest, Rules
from dlcp_client.report.exchange_times import MIN_STEPS
from dlcpd.contract.policy import LossPolicy
from tests.client import exact_steps_ranks
from tests.client.exact_steps_ranks import OFTEN, WARMUP, samples_of
from tests.client.stand_in import StandIn
from tests.client.test_ddp import on_each_rank

LAST = WARMUP + 4 * EVERY


class Steps:
    """A model's rules, step by step, without a session: every step requests its one gradient."""

    def __init__(self, policy: LossPolicy, guard: Guard | None = None) -> None:
        self.model = nn.Linear(512, 512, bias=False)  # 1 MiB
        self.rules = Rules(self.model, policy, WARMUP)
        self.rules.close()
        self.sampler = GuardSampler(guard, self.rules) if guard else None
        self.sampled: list[int] = []

    def request(self) -> GradientRequest:
        """The request of the next step."""
        self.rules.begin_step(None)  # type: ignore[arg-type]  # only needed to agree on classes
        [weight] = self.model.parameters()
        run = [PlacedGradient(weight, weight.detach(), 0, EXACT_BELOW)]
        made = self.rules.request(run, 0, EXACT_BELOW)
        if self.sampler and self.sampler.samples(made):
            self.sampled.append(self.rules.step)
        return made

    def all(self) -> list[GradientRequest]:
        return [self.request() for _ in range(LAST)]


CLASSED: dict[str, Any] = {"traffic_class": "front"}  # so that ranks need not agree on classes


def exact_steps(requests: list[GradientRequest]) -> list[int]:
    modes = [request.policy.mode for request in requests]
    return [step for step, mode in enumerate(modes, 1) if step > WARMUP and mode == "exact"]


def test_one_step_in_fifty_is_exact_and_those_beside_it_are_timed() -> None:
    assert sum(map(is_exact, range(10 * EVERY))) == 10
    assert sum(map(is_timed, range(10 * EVERY))) == 10 * (2 * BESIDE + 1)
    assert all(is_timed(step) for step in range(10 * EVERY) if is_exact(step))
    assert not is_exact(0)


def test_a_training_without_a_guard_has_no_exact_steps() -> None:
    requests = Steps(bounded(0.1, **CLASSED)).all()
    assert not exact_steps(requests)
    assert all(request.seconds is None for request in requests)


def test_exact_steps_of_a_guard_reapply_residuals_and_are_timed() -> None:
    steps = Steps(bounded(0.1, **CLASSED), Guard())
    requests = steps.all()
    assert exact_steps(requests) == [WARMUP + 1 + n for n in range(LAST - WARMUP) if is_exact(n)]
    names = {request.name for request in requests[WARMUP:]}
    assert len(names) == 1 and "" not in names  # of the same residual
    timed = [step for step, request in enumerate(requests, 1) if request.seconds is not None]
    assert timed == [WARMUP + 1 + n for n in range(LAST - WARMUP) if is_timed(n)]
    assert requests[WARMUP + EVERY // 2].policy.max_loss == 0.0


def test_exact_steps_keep_the_codec_and_what_is_exempt_from_it() -> None:
    steps = Steps(bounded(0.1, codec="int8", **CLASSED), Guard(every=5))
    requests = steps.all()
    [first, *_] = exact_steps(requests)
    assert requests[first - 1].policy.codec == "int8"
    assert first not in steps.sampled  # its error is the codec's alone


@pytest.mark.parametrize("every", [2, 5, 7, 25, 50, 100])
def test_a_guard_samples_bounded_steps_at_its_own_distance(every: int) -> None:
    steps = Steps(bounded(0.1, **CLASSED), Guard(every=every))
    among = exact_steps(steps.all())
    inexact = [step for step in range(WARMUP + 1, LAST + 1) if step not in among]
    assert steps.sampled == inexact[::every]


def test_a_guard_of_every_step_leaves_none_to_compare() -> None:
    steps = Steps(bounded(0.1, **CLASSED), Guard(every=1))
    assert not exact_steps(steps.all())
    assert len(steps.sampled) == LAST - WARMUP


@pytest.mark.parametrize("policy", [exact(codec="int8", **CLASSED), bounded(0.1, **CLASSED)])
def test_policies_that_wait_for_all_have_nothing_to_compare(policy: LossPolicy) -> None:
    steps = Steps(policy, Guard(every=25))
    if policy.mode == "bounded":
        steps.rules.change(exact(codec="int8", **CLASSED))
    assert all(request.seconds is None for request in steps.all())
    assert steps.sampled == list(range(WARMUP + 1, LAST + 1, 25))


def test_a_tighter_bound_is_compared_anew_and_an_exact_one_keeps_what_was_found() -> None:
    steps = Steps(bounded(0.1, **CLASSED), Guard())
    for _ in range(LAST):
        if (seconds := steps.request().seconds) is not None:
            seconds.append(1.0)
    rules = steps.rules
    assert rules.account.exchanges.compared() is not None
    rules.limit(0.0)
    assert rules.account.exchanges.compared() is not None
    rules.change(bounded(0.05, **CLASSED))
    steps.request()
    assert rules.account.exchanges.compared() is None


def test_no_step_of_a_calibration_is_exact_and_none_that_decides() -> None:
    calibration = Calibration(list, first=WARMUP + 1, clock=lambda: 0.0)
    steps = Steps(bounded(0.1, **CLASSED))
    steps.rules.compare(calibration.is_between)
    found, measured = [], []
    for step in range(1, 6 * EVERY):
        first = calibration.next
        steps.request()
        calibration.begin(step)
        calibration.note("dlcp", EXACT_BELOW, 0.1)
        calibration.note("backend", EXACT_BELOW, 0.1)
        if first <= step <= first + STEPS:
            measured.append(step)
        if steps.rules.exact_step:
            found.append(step)
    assert found and not set(found) & set(measured)


def test_an_operation_is_timed_once_before_its_end_or_after_it(world: StandIn) -> None:
    seconds: list[float] = []
    works = [session.all_reduce(torch.ones(4)) for session in world.sessions]
    works[0].time(seconds, watch=True)
    for work in works:
        work.wait()
    works[1].time(seconds, watch=False)  # its result has arrived
    assert seconds == [work.took for work in works]
    assert min(seconds) > 0


def test_an_operation_that_failed_has_no_time(world: StandIn) -> None:
    seconds: list[float] = []
    work = world.sessions[0].all_reduce(torch.ones(4))
    work.time(seconds, watch=False)
    world.far[0].close()
    with pytest.raises(DaemonLost):
        work.wait()
    work.time(seconds, watch=False)
    assert not seconds


@pytest.mark.parametrize("how", ["ddp", "cross_step"])
def test_a_guarded_training_says_what_its_bound_saved(
    tmp_path: Path, lossy: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLCPD_SHARE", "0")  # what ranks of one daemon exchange is never lost
    ranks = on_each_rank(exact_steps_ranks.compared, tmp_path, how, lossy)
    first, second = ranks
    assert first["exact"] == second["exact"] == exact_steps_ranks.exact_steps()
    assert np.array_equal(first["weights"], second["weights"])
    for rank in ranks:
        lost = dict(enumerate(rank["waived"], 1))
        assert not any(lost[step] for step in rank["exact"])
        assert sum(lost.values()) > 0
        assert rank["names"] == 1  # of one operation, bounded and exact
        compared = rank["compared"]
        assert compared.exact == len(rank["exact"]) >= MIN_STEPS
        assert compared.bounded == samples_of(rank["sampled"])
        assert str(compared) in rank["summary"].splitlines()
        assert f"{compared.bounded} bounded steps against {compared.exact} exact" in str(compared)
        assert rank["metrics"]["exchange_saved"] == compared.saved
        assert OFTEN > 2 * BESIDE  # steps far from an exact one exist here, too
