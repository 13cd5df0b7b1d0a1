"""Results of a training from those of its ranks: times, losses, counts, replicas. Pure."""

from collections.abc import Sequence
from typing import Any, Final

from dlcp_lab.report.statistic import mean, slowest

MARKS: Final = (0.25, 0.5, 0.75, 1.0)  # of the steps, at which losses are compared

Run = list[dict[str, Any]]  # results of one training by rank, see dlcp_lab.training.loop


def losses_at_marks(run: Run) -> list[float]:
    """Training loss, mean of all ranks and of the steps before each mark (a tenth of all steps).

    Raises: NotMeasured without a step.
    """
    curve = [mean(of_ranks) for of_ranks in zip(*(rank["losses"] for rank in run), strict=True)]
    width = max(1, len(curve) // 10)  # one batch's loss is mostly noise
    stops = [round(mark * len(curve)) for mark in MARKS]
    return [mean(curve[max(0, stop - width) : max(1, stop)]) for stop in stops]


def step_times(run: Run) -> list[float]:
    """Time of the slowest rank per step, seconds."""
    return slowest([rank["times"] for rank in run])


def total(run: Run, name: str) -> int:
    """A count of the ledger, sum of all ranks."""
    return sum(rank["books"][name] for rank in run)


def replicas(run: Run) -> str:
    """The digest of all ranks, or the number of different ones."""
    digests = distinct([rank["digest"] for rank in run])
    return digests[0] if len(digests) == 1 else f"{len(digests)} DIFFERENT"


def distinct(digests: Sequence[str]) -> list[str]:
    """Each digest once, sorted."""
    return sorted(set(digests))
