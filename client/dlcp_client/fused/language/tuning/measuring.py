"""Which candidate each step uses while some are compared, and when a choice no longer holds. Pure.

Times are of a program's run, from the call of the last rank on. All ranks give equal ones, so they
decide alike, in the same step.
"""

from collections.abc import Sequence
from typing import Final

from dlcp_client.auto.choice import MIN_PAUSE, TOLERANCE
from dlcp_client.auto.turns import TURN, counts, there_and_back

FINALISTS: Final = 3  # of the cost model; the program as written is compared as well
# The quickest of WINDOW runs is compared with the quickest run of the comparison: other work on a
# host delays some runs, a changed link all of them.
CHANGED: Final = 1.5  # factor, up or down
WINDOW: Final = 20  # runs
MAX_PAUSE: Final = 10_000  # steps between two measurements that choose the same


class Comparison:
    """Steps in which `count` candidates take turns, there and back."""

    def __init__(self, count: int) -> None:
        self.count: Final = count
        self.steps: Final = 2 * count * TURN
        self.step = 0  # that is next
        self.seconds: list[float] = []  # of this rank, of the steps that count

    @property
    def over(self) -> bool:
        """Whether all steps are done."""
        return self.step == self.steps

    @property
    def way(self) -> int:
        """The candidate of the next step."""
        return there_and_back(range(self.count))[self.step // TURN]

    def ran(self, seconds: float) -> None:
        """A step is done."""
        if counts(self.step):
            self.seconds.append(seconds)
        self.step += 1

    def by_way(self, seconds: Sequence[float]) -> list[list[float]]:
        """Agreed times of the steps that count, by candidate."""
        ways = there_and_back(range(self.count))
        counted = [ways[step // TURN] for step in range(self.steps) if counts(step)]
        pairs = list(zip(counted, seconds, strict=True))
        return [[s for way, s in pairs if way == one] for one in range(self.count)]


def fastest(seconds: Sequence[float], before: int | None = None) -> int:
    """The candidate to use. `before`: the one in use, which stays unless another is faster by more
    than TOLERANCE."""
    best = min(range(len(seconds)), key=lambda at: seconds[at])
    if before is not None and seconds[before] <= seconds[best] * (1 + TOLERANCE):
        return before
    return best


class Watch:
    """Notices that a run takes longer, or shorter, than when its candidate was chosen."""

    def __init__(self, expected: float, *, cached: bool, pause: int = MIN_PAUSE) -> None:
        """`expected`: least seconds of a run, above 0. `cached`: from an earlier job, so it is
        compared soon."""
        self._expected, self._pause = expected, pause
        self._left = WINDOW + 1 if cached else pause  # runs until the comparison
        self._seconds: list[float] = []

    @property
    def due(self) -> bool:
        """Whether the ranks are to agree on `seconds` now, and call `changed`."""
        return not self._left

    @property
    def seconds(self) -> list[float]:
        """The last runs of this rank."""
        return self._seconds

    def ran(self, seconds: float) -> None:
        """A step is done."""
        self._seconds = [*self._seconds, seconds][-WINDOW:]
        self._left -= 1

    def changed(self, agreed: Sequence[float]) -> float:
        """The least seconds of a run now, of agreed times, if they are off by CHANGED; else 0."""
        self._left, self._seconds = self._pause, []
        now = min(agreed)
        return now if max(now / self._expected, self._expected / now) > CHANGED else 0.0


def next_pause(pause: int, *, confirmed: bool) -> int:
    """Steps until a choice is compared again. One that a measurement has confirmed is compared
    less often, so that a noisy host does not measure all the time."""
    return min(2 * pause, MAX_PAUSE) if confirmed else MIN_PAUSE
