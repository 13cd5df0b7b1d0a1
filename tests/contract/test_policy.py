"""The loss policy: the default is exact, and a policy that contradicts itself is refused."""

import math
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import pytest

from dlcpd.contract.errors import BadPolicy
from dlcpd.contract.policy import (
    DEFAULT_MAX_LOSS,
    EXACT,
    MAX_LOSS_LIMIT,
    LossPolicy,
    bounded,
    exact,
)
from dlcpd.contract.times import MAX_TIME


def test_the_default_loses_nothing() -> None:
    assert exact() == EXACT == LossPolicy()
    assert (EXACT.mode, EXACT.max_loss) == ("exact", 0.0)


def test_bounded_is_at_most_one_percent_unless_asked() -> None:
    policy = bounded()
    assert (policy.mode, policy.max_loss, policy.fill) == ("bounded", DEFAULT_MAX_LOSS, "residual")
    assert DEFAULT_MAX_LOSS <= 0.01


def test_changes_are_taken_over() -> None:
    policy = bounded(0.25, fill="zero", traffic_class="front", deadline=1.5)
    assert policy == LossPolicy("bounded", 0.25, "zero", "front", 1.5)
    assert exact(deadline=2.0).deadline == 2.0


@pytest.mark.parametrize(
    "changes",
    [{"max_loss": MAX_LOSS_LIMIT}, {"max_loss": 5e-324}, {"deadline": MAX_TIME}],
    ids=str,
)
def test_the_limits_are_allowed(changes: dict[str, Any]) -> None:
    bounded(**changes)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"mode": "lossy"}, "mode 'lossy': use"),
        ({"fill": "rescale"}, "fill 'rescale': use"),
        ({"max_loss": -0.01}, "max_loss -0.01: a fraction"),
        ({"max_loss": MAX_LOSS_LIMIT + 0.01}, "max_loss 0.51: a fraction"),
        ({"max_loss": math.nan}, "max_loss nan: a fraction"),
        ({"max_loss": math.inf}, "max_loss inf: a fraction"),
        ({"max_loss": 0.0}, "does not fit"),
        ({"mode": "exact"}, "does not fit"),
        ({"deadline": 0.0}, "deadline 0.0"),
        ({"deadline": -1.0}, "deadline -1.0"),
        ({"deadline": timedelta(0)}, "deadline datetime.timedelta"),
        ({"deadline": "60"}, "deadline '60'"),
        ({"deadline": math.nan}, "deadline nan"),
        ({"traffic_class": "gold"}, "traffic class 'gold': use one of control"),
        ({"per_class": {"gold": 0.001}}, "per_class 'gold'"),
        ({"per_class": {"back": 0.02}}, "per_class 'back': 0.02: a traffic class and a fraction"),
        ({"per_class": {"back": -0.001}}, "per_class 'back'"),
        ({"per_class": {"back": math.nan}}, "per_class 'back'"),
        ({"gather": "int8"}, "gather 'int8': use \"bf16\", or leave it out"),
    ],
    ids=str,
)
def test_a_wrong_policy_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(BadPolicy, match=told):
        LossPolicy(**(asdict(bounded()) | changes))


def test_a_class_may_have_a_tighter_bound() -> None:
    policy = bounded(0.01, per_class={"back": 0.004})
    assert (policy.max_loss_of("back"), policy.max_loss_of("front")) == (0.004, 0.01)


def test_a_misspelt_setting_is_refused() -> None:
    with pytest.raises(TypeError, match="maxloss"):
        exact(maxloss=0.1)  # type: ignore[call-arg]
