"""Rows of the tables of `bench training`, and the verdicts on them. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from dlcp_lab.report.checks import OPEN, Check, judged, verdict
from dlcp_lab.report.measured import figure
from dlcp_lab.report.statistic import least, mean, median, most, pairs, quotient, slowest, some
from dlcp_lab.training.learning import (
    MARKS,
    Run,
    distinct,
    losses_at_marks,
    replicas,
    step_times,
    total,
)
from dlcpd.contract.policy import DEFAULT_MAX_LOSS

GLOO, EXACT, BOUNDED, CROSSED = "gloo", "exact", "bounded", "bounded, cross-step"
TRANSPORTS: Final = (GLOO, EXACT, BOUNDED, CROSSED)
HIGHER_IS_BETTER: Final = ("accuracy",)  # of scores; the others are losses
QUANTUM: Final = 1 / 360  # least difference of two accuracies: one held-out digit
LEAST_SEEDS: Final = 2  # seeds that a spread needs
WARMUP: Final = 10  # exact steps before a bounded policy takes effect: `register`'s default
LEAST_STEPS: Final = 3 * WARMUP  # a shorter training does not show what loss does to learning
WORTH: Final = 1.02  # a ratio below is no gain
COMPARED: Final = (
    (EXACT, GLOO),
    (BOUNDED, GLOO),
    (CROSSED, GLOO),
    (BOUNDED, EXACT),
    (CROSSED, BOUNDED),
)

Runs = list[Run]  # of one task over one transport, one per seed
Trained = Mapping[str, Runs]  # transport -> runs, of one task


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One transport on one task. A list has a value per seed."""

    task: str
    transport: str
    step: list[float]  # median step, seconds
    seconds: list[float]  # all steps
    forward: list[float]  # median forward pass, seconds, its waits included
    over_gloo: list[float]  # Gloo's time for all steps / this one's; above 1 this is faster
    losses: list[list[float]]  # of training, at MARKS
    score_name: str
    score: list[float]
    waived: list[float]  # share of segments
    retransmitted: list[float]
    replicas: list[str]
    background: list[float]  # goodput of the background TCP flow, bit/s


def row(transport: str, task: Trained, goodput: Sequence[float]) -> TrainingRow:
    """The row of one transport; `goodput` is that of the background flow, bit/s by seed.

    Raises: NotMeasured if no training ended, or a time is 0.
    """
    runs, gloo = some(task[transport], "training that ended"), task[GLOO]
    return TrainingRow(
        runs[0][0]["task"],
        transport,
        [median(step_times(run)) for run in runs],
        [seconds(run) for run in runs],
        [median(slowest([rank["forwards"] for rank in run])) for run in runs],
        [quotient(seconds(a), seconds(b)) for a, b in pairs(gloo, runs)],
        [losses_at_marks(run) for run in runs],
        runs[0][0]["score_name"],
        [run[0]["score"] for run in runs],
        [share(run, "waived") for run in runs],
        [share(run, "retransmitted") for run in runs],
        [replicas(run) for run in runs],
        list(goodput),
    )


def seconds(run: Run) -> float:
    """Time of all steps, the slowest rank of each."""
    return sum(step_times(run))


def share(run: Run, name: str) -> float:
    """Count `name` as a share of the segments sent; 0 over Gloo, which has no counts."""
    return total(run, name) / max(total(run, "sent"), 1) if run[0]["books"] else 0.0


SPEED: Final = (
    "task", "transport", "step (ms)", "total (s)", "gloo/this", "by seed", "waived",
    "retransmitted",
    "background (Mbit/s)",
)  # fmt: skip
LEARNING: Final = (
    "task", "transport", *(f"loss at {mark:.0%}" for mark in MARKS), "final", "by seed", "",
    "replicas",
)  # fmt: skip


def speed(one: TrainingRow) -> list[object]:
    """Cells of the table of times; medians over seeds."""
    is_dlcpd = one.transport != GLOO
    return [
        one.task,
        one.transport,
        f"{median(one.step) * 1e3:.0f}",
        f"{median(one.seconds):.1f}",
        median(one.over_gloo) if is_dlcpd else None,
        _range(one.over_gloo, 2) if is_dlcpd else None,
        f"{mean(one.waived):.2%}" if is_dlcpd else None,
        f"{mean(one.retransmitted):.2%}" if is_dlcpd else None,
        f"{mean(one.background) / 1e6:.1f}" if one.background else None,
    ]


def learning(one: TrainingRow) -> list[object]:
    """Cells of the table of losses and scores; means over seeds."""
    marks = [f"{mean(of_seeds):.4f}" for of_seeds in zip(*one.losses, strict=True)]
    alike = all("DIFFERENT" not in digest for digest in one.replicas)
    return [
        one.task,
        one.transport,
        *marks,
        f"{mean(one.score):.4f}",
        _range(one.score, 4),
        one.score_name,
        "equal" if alike else "DIFFERENT",
    ]


def _range(values: Sequence[float], digits: int) -> str:
    return f"{least(values):.{digits}f}..{most(values):.{digits}f}"


RULE: Final = (
    "rule: the mean final score over the seeds may be worse than exact's by no more than the range "
    "of exact's own (largest less smallest seed), and 1/360 (one digit) at the least"
)


def judge(task: Trained) -> Iterator[Check]:
    """Replicas, bound and quality of one task."""
    if not all(task.values()):
        yield Check("P2", "all ranks hold the same model", OPEN, "no training ended")
        return
    name = task[GLOO][0][0]["task"]
    yield equal(name, task)
    for transport in (BOUNDED, CROSSED):
        yield _bound(name, transport, task[transport])
        yield judged("P4", _learns(name, transport), partial(_quality, name, transport, task))


def equal(name: str, task: Trained) -> Check:
    """Whether all ranks hold the same model at the end of each training."""
    what = f"{name}: all ranks hold the same model"
    if not task[EXACT]:
        return Check("P2", what, OPEN, "no training ended")
    offenders = [
        f"{transport}, seed {number + 1}: {len(digests)} sets of parameters"
        for transport, runs in task.items()
        for number, run in enumerate(runs)
        if len(digests := distinct([rank["digest"] for rank in run])) > 1
    ]
    good = f"{len(task[EXACT][0])} ranks, bit for bit"
    return Check("P2", what, *verdict(offenders, good))


def _bound(name: str, transport: str, runs: Runs) -> Check:
    shares = [share(run, "waived") for run in runs]
    offenders = [
        f"seed {number + 1}: {one:.2%} waived, bound {DEFAULT_MAX_LOSS:.2%}"
        for number, one in enumerate(shares)
        if one > DEFAULT_MAX_LOSS
    ]
    what = f"{name}, {transport}: loss within the bound"
    if not any(shares):
        return Check("P3", what, OPEN, "nothing was waived")
    return Check("P3", what, *verdict(offenders, f"up to {max(shares):.2%} waived"))


def _learns(name: str, transport: str) -> str:
    return f"{name}, {transport}: the score is within the noise of exact's"


def _quality(name: str, transport: str, task: Trained) -> Check:
    """See RULE."""
    what = _learns(name, transport)
    exact, scores = ([run[0]["score"] for run in task[t]] for t in (EXACT, transport))
    if len(exact) < LEAST_SEEDS:
        return Check("P4", what, OPEN, "one seed has no spread to compare with")
    steps = len(task[EXACT][0][0]["losses"])
    if steps < LEAST_STEPS:
        return Check("P4", what, OPEN, f"{steps} steps, of which the first {WARMUP} are exact")
    noise = max(most(exact) - least(exact), QUANTUM)
    sign = 1 if task[EXACT][0][0]["score_name"] in HIGHER_IS_BETTER else -1
    worse = sign * (mean(exact) - mean(scores))
    apart = max(abs(a - b) for a, b in zip(exact, scores, strict=True))
    seen = (
        f"{mean(scores):.4f} against {mean(exact):.4f}, noise {noise:.4f}; of the same seed up to "
        f"{apart:.4f} apart"
    )
    return Check("P4", what, *verdict([seen] if worse > noise else [], seen))


def honesty(rows: Sequence[TrainingRow]) -> Iterator[str]:
    """Transports without a gain on a task, with the reason as far as the numbers show it (P10).

    A transport without a row is compared with no other.
    """
    by = {one.transport: one for one in rows}
    for one, other in ((by[a], by[b]) for a, b in COMPARED if a in by and b in by):
        gain = figure(partial(gain_over, other, one))
        if gain is not None and gain < WORTH:
            yield _none(one, other, gain, _because(one, other, by.get(GLOO)))


def _because(one: TrainingRow, other: TrainingRow, gloo: TrainingRow | None) -> str:
    """Why `one` takes no less time than `other`."""
    if other.transport == GLOO:
        return _against_gloo(one, other)
    if one.transport == BOUNDED:
        return (
            f"only {mean(one.waived):.2%} of the segments were waived, and "
            f"{mean(one.retransmitted):.2%} retransmitted"
        )
    forward = median((gloo or other).forward)
    return (
        f"a forward pass takes {forward * 1000.0:.0f} ms of a step of "
        f"{median(one.step) * 1000.0:.0f} ms: too little to overlap with communication"
    )


def gain_over(other: TrainingRow, one: TrainingRow) -> float:
    """Time of `other` for all steps / time of `one`, pair by pair; the median of the seeds.

    Raises: NotMeasured.
    """
    return median([quotient(a, b) for a, b in pairs(other.seconds, one.seconds)])


def _none(one: TrainingRow, other: TrainingRow, gain: float, because: str) -> str:
    return (
        f"no gain on {one.task} from {one.transport}: {other.transport} takes {gain:.2f} of its "
        f"time, because {because}"
    )


def _against_gloo(one: TrainingRow, gloo: TrainingRow) -> str:
    if one.background and mean(one.background) > WORTH * mean(gloo.background or [0.0]):
        return (
            f"Gloo's TCP leaves less to the background flow: it carried {_beside(gloo)} with "
            f"Gloo, and {_beside(one)} with dlcpd"
        )
    return (
        f"TCP tolerates this loss, and dlcpd retransmitted {mean(one.retransmitted):.2%} of "
        "its segments"
    )


def _beside(one: TrainingRow) -> str:
    return f"{mean(one.background or [0.0]) / 1e6:.1f} Mbit/s"
