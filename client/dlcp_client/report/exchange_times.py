"""Times of exchanges in bounded and in exact mode, compared. Pure.

The estimator: the time of a step is the sum over its operations, relative to that of the same
operations (of one name and size) in exact steps, each at its median. `saved` is 1 minus the ratio
of the medians over bounded and over exact steps. Medians hide the slowest steps, from which bounded
mode saves most.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

MIN_STEPS: Final = 5  # of each mode; fewer are no median
KEPT_EXACT: Final = 32  # steps; 1,600 steps of a training
KEPT_BOUNDED: Final = 128  # steps: four beside each exact one
MAX_OPERATIONS: Final = 128  # of a step; 0.3 kB each, so 6 MB for all steps kept
BEYOND_CHANCE: Final = 1.96  # standard deviations: chance alone exceeds it once in 20

Operation = tuple[str, int]  # name and bytes


@dataclass(frozen=True, slots=True)
class ExchangeComparison:
    """Bounded steps against exact ones. With too few steps `saved` is unknown: 0."""

    bounded: int  # steps
    exact: int  # steps
    saved: float = 0.0  # fraction of the time of exact exchanges; below 0: bounded took longer
    sure: bool = False  # whether the difference is beyond chance

    @property
    def enough(self) -> bool:
        """Whether there are enough steps of both modes."""
        return min(self.bounded, self.exact) >= MIN_STEPS

    def __str__(self) -> str:
        if not self.enough:
            steps = f"{self.bounded} bounded steps and {self.exact} exact ones"
            return f"too few samples to compare exchanges: {steps}, and {MIN_STEPS} are needed"
        steps = f"(median of {self.bounded} bounded steps against {self.exact} exact ones)"
        change = f"{abs(self.saved):.0%}"
        if not self.sure or change == "0%":
            return f"bounded mode saved no exchange time beyond chance {steps}"
        if self.saved > 0:
            return f"bounded cut {change} of the exchange time {steps}"
        return f"bounded took {change} longer to exchange {steps}"


@dataclass(slots=True)
class TimedStep:
    """The operations of one step: their seconds, in a list that is empty until they end."""

    operations: dict[Operation, list[float]] = field(default_factory=dict)

    def times(self) -> dict[Operation, float]:
        """Seconds of the operations that have ended."""
        return {key: found[0] for key, found in self.operations.items() if found}


class ExchangeTimes:
    """The last timed steps of one training. `begin` starts a step, `place` adds an operation.

    All methods belong to the training's thread; other threads append to the lists.
    """

    def __init__(self) -> None:
        self._now: TimedStep | None = None
        self.forget()

    def forget(self) -> None:
        """Start anew, for another bound. Operations in flight are dropped."""
        self.exact: deque[TimedStep] = deque(maxlen=KEPT_EXACT)
        self.bounded: deque[TimedStep] = deque(maxlen=KEPT_BOUNDED)

    def begin(self, *, timed: bool, exact: bool = False) -> None:
        """Begin a step."""
        self._now = TimedStep() if timed else None
        if self._now is not None:
            (self.exact if exact else self.bounded).append(self._now)

    def place(self, name: str, size: int) -> list[float] | None:
        """A list to which an operation of this step appends its seconds; None: it is not timed."""
        step = self._now
        if step is None or len(step.operations) >= MAX_OPERATIONS:
            return None
        return step.operations.setdefault((name, size), [])

    def compared(self) -> ExchangeComparison | None:
        """The comparison so far; None before the first exact step that exchanged anything."""
        exact = _with_times(self.exact)
        if not exact:
            return None
        bounded = _with_times(self.bounded)
        usual = _usual(exact, {key for step in bounded for key in step})
        mine, others = _relative(bounded, usual), _relative(exact, usual)
        if min(len(mine), len(others)) < MIN_STEPS:
            return ExchangeComparison(len(mine), len(others))
        saved = 1.0 - median(mine) / base if (base := median(others)) > 0 else 0.0
        shorter = deviations(mine, others)
        sure = abs(shorter) >= BEYOND_CHANCE and (shorter > 0) == (saved > 0)
        return ExchangeComparison(len(mine), len(others), saved, sure)


def deviations(some: Sequence[float], others: Sequence[float]) -> float:
    """How far `some` are below `others`, by their ranks, in standard deviations of chance.

    Source: Mann and Whitney, Annals of Mathematical Statistics 18, 1947; normal approximation.
    """
    count = len(some) * len(others)
    if not count:
        return 0.0
    below = sum((a < b) + 0.5 * (a == b) for a in some for b in others)
    return float((below - count / 2) / (count * (len(some) + len(others) + 1) / 12) ** 0.5)


def _with_times(steps: Iterable[TimedStep]) -> list[dict[Operation, float]]:
    return [times for step in steps if (times := step.times())]


def _usual(
    exact: Sequence[dict[Operation, float]], known: set[Operation]
) -> dict[Operation, float]:
    """The median seconds of each operation in exact steps, for those of `known`."""
    seconds: dict[Operation, list[float]] = {}
    for step in exact:
        for key in step.keys() & known:
            seconds.setdefault(key, []).append(step[key])
    return {key: median(found) for key, found in seconds.items()}


def _relative(
    steps: Sequence[dict[Operation, float]], usual: dict[Operation, float]
) -> list[float]:
    """The time of each step, relative to the usual one of the same operations."""
    found = []
    for step in steps:
        keys = step.keys() & usual.keys()
        expected = sum(usual[key] for key in keys)
        if expected > 0:
            found.append(sum(step[key] for key in keys) / expected)
    return found
