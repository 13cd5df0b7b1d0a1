"""What a training showed, as its ranks tell it: time, learning, books, replicas. Pure."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any, Final

from dlcp_lab.report.statistic import slowest

MARKS: Final = (0.25, 0.5, 0.75, 1.0)  # of the steps, at which losses are compared

Run = list[dict[str, Any]]  # one training, from each rank, see dlcp_lab.training.loop


def losses_at_marks(run: Run) -> list[float]:
    """Training loss, mean of all ranks, averaged over the steps of each quarter's last part."""
    curve = [fmean(of_ranks) for of_ranks in zip(*(rank["losses"] for rank in run), strict=True)]
    width = max(1, len(curve) // 10)  # one batch's loss is mostly noise
    stops = [round(mark * len(curve)) for mark in MARKS]
    return [fmean(curve[max(0, stop - width) : max(1, stop)]) for stop in stops]


def step_times(run: Run) -> list[float]:
    """Per step the time of its slowest rank, seconds."""
    return slowest([rank["times"] for rank in run])


def total(run: Run, name: str) -> int:
    """A count of the books, all ranks together."""
    return sum(rank["books"][name] for rank in run)


def replicas(run: Run) -> str:
    """The digest that all ranks have, or how many there are."""
    digests = distinct([rank["digest"] for rank in run])
    return digests[0] if len(digests) == 1 else f"{len(digests)} DIFFERENT"


def distinct(digests: Sequence[str]) -> list[str]:
    """Each once."""
    return sorted(set(digests))
