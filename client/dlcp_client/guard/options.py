"""Limits on the error of bounded operations, and the reaction to an excess."""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from dlcpd.contract.errors import BadConfig
from dlcpd.contract.policy import MAX_LOSS_LIMIT, LossPolicy, checked

OnExcess = Literal["tighten", "exact", "stop", "warn"]


@dataclass(frozen=True, slots=True)
class Guard:
    """Compares averages with exact ones. A sampled step averages its bounded gradients, and those
    with a codec, exactly as well. And if `every` is 2 or more, one bounded step in 50 is exact
    instead: `summary()` of the registration says what bounded mode saves.

    `every`: bounded steps from one sample to the next; the first one is sampled. `max_error`: the
    largest relative error, ||bounded - exact|| / ||exact|| over all bounded gradients of a step.
    `on_excess`, on all ranks in the same step: "tighten" halves the bound, and below `floor` (a
    fraction of segments) continues exactly, without the codec; "exact" does so at once; "stop"
    raises GuardStopped out of backward(); "warn" logs a warning.

    Raises: BadConfig naming the field.
    """

    every: int = 100  # a sample costs one more all-reduce: 1 %
    max_error: float = 0.05
    on_excess: OnExcess = "tighten"
    floor: float = 0.001  # 0.1 % of the segments: 1.4 MB of residuals per GB

    def __post_init__(self) -> None:
        if type(self.every) is not int or self.every < 1:
            raise BadConfig(
                f"guard every={self.every!r} is not valid: use a whole number of steps, 1 or more"
            )
        if not _is_within(self.max_error, math.inf):
            raise BadConfig(
                f"guard max_error={self.max_error!r} is not valid: use a fraction, 0 or more"
            )
        if self.on_excess not in get_args(OnExcess):
            known = ", ".join(get_args(OnExcess))
            raise BadConfig(f"guard on_excess={self.on_excess!r} is not known: use one of {known}")
        if not _is_within(self.floor, MAX_LOSS_LIMIT):
            raise BadConfig(
                f"guard floor={self.floor!r} is out of range: use a fraction 0..{MAX_LOSS_LIMIT}"
            )


def _is_within(value: Any, high: float) -> bool:
    return isinstance(value, int | float) and 0 <= value <= high


def checked_guard(guard: Any, policy: LossPolicy, transport: str = "dlcp") -> Guard | None:
    """`guard`, if it fits policy and transport.

    Raises: BadConfig, BadPolicy.
    """
    if guard is None:
        return None
    if not isinstance(guard, Guard):
        raise BadConfig(
            f"guard {guard!r} is not a Guard: use Guard(every=100, max_error=0.05) of dlcp_client"
        )
    if checked(policy).is_plain:
        raise BadConfig("guard: an exact policy has no loss to sample; leave guard= out")
    if transport != "dlcp":
        raise BadConfig(
            f'guard: it samples gradients that dlcpd reduces, and transport="{transport}" '
            "may use the backend; leave one of the two out"
        )
    return guard
