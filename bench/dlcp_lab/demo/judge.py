"""Verdicts on the promises that the trainings of a task show. Pure.

No result is compared with a number measured on another machine. Training amplifies the last bit of
a gradient into the second digit of a loss, and that bit depends on the order of addition, the
instruction set and the libraries. So exact mode must equal a reference in the same run bit for bit,
and learning is judged by the noise of the same run.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from dlcp_lab.report.checks import OPEN, Check, judged, verdict
from dlcp_lab.report.statistic import most, prediction_limit, quotient
from dlcp_lab.training.learning import Run, distinct, losses_at_marks, replicas, total
from dlcpd.contract.policy import DEFAULT_MAX_LOSS

LEAST_SEEDS: Final = 2  # seeds that a spread needs
SEGMENT: Final = 1408  # bytes per segment in the demo, which fit an MTU of 1,500


@dataclass(frozen=True, slots=True)
class Trained:
    """The trainings of one task."""

    runs: dict[str, Run]  # with seed 0, by transport: gloo, reference, exact, bounded
    others: list[Run]  # over Gloo, with other seeds

    @property
    def name(self) -> str:
        """Name of the task."""
        name: str = self.runs["gloo"][0]["task"]
        return name


def by_task(runs: Sequence[Run]) -> list[Trained]:
    """The runs of each task, in the order in which they came."""
    out: dict[str, Trained] = {}
    for run in runs:
        trained = out.setdefault(run[0]["task"], Trained({}, []))
        if run[0]["seed"]:
            trained.others.append(run)
        else:
            trained.runs[run[0]["transport"]] = run
    return list(out.values())


def judge(trained: Trained) -> Iterator[Check]:
    """Checks of the promises that the trainings show."""
    yield judged("P1", f"{trained.name}: exact is the sum in rank order", lambda: _exact(trained))
    yield _equal(trained)
    yield _bound(trained)
    yield _reapplied(trained)
    learns = f"{trained.name}: bounded loss costs no learning"
    yield judged("P4", learns, lambda: _learns(trained))


def apart(one: Run, other: Run) -> float:
    """The largest relative difference of the losses of two runs at the marks.

    Raises: NotMeasured without a step, or if a loss of `other` is 0.
    """
    pairs = zip(losses_at_marks(one), losses_at_marks(other), strict=True)
    return most([quotient(abs(a - b), b, "a loss of 0") for a, b in pairs])


def _exact(trained: Trained) -> Check:
    exact, reference = trained.runs["exact"], trained.runs["reference"]
    offenders = []
    if len(distinct([rank["digest"] for rank in (*exact, *reference)])) > 1:
        offenders.append(
            f"parameters {replicas(exact)}, the reference's {replicas(reference)}; losses up to "
            f"{apart(exact, reference):.2%} apart"
        )
    what = f"{trained.name}: exact is the sum in rank order"
    good = f"{len(exact[0]['losses'])} steps end bit for bit where the reference's do"
    return Check("P1", what, *verdict(offenders, good))


def _equal(trained: Trained) -> Check:
    offenders = [
        f"{transport}: {replicas(trained.runs[transport])} sets of parameters"
        for transport in ("exact", "bounded")
        if len({rank["digest"] for rank in trained.runs[transport]}) > 1
    ]
    good = f"{len(trained.runs['exact'])} ranks, bit for bit"
    return Check("P2", f"{trained.name}: all ranks hold the same model", *verdict(offenders, good))


def _bound(trained: Trained) -> Check:
    what = f"{trained.name}: loss within the bound, none in exact mode"
    offenders = []
    if total(trained.runs["exact"], "waived") or total(trained.runs["exact"], "lost"):
        offenders.append("exact mode waived segments")
    run = trained.runs["bounded"]
    share = total(run, "waived") / max(total(run, "sent"), 1)
    if share > DEFAULT_MAX_LOSS:
        offenders.append(f"{share:.2%} waived, bound {DEFAULT_MAX_LOSS:.2%}")
    if total(run, "waived") != total(run, "lost"):
        offenders.append(f"{total(run, 'waived')} waived, {total(run, 'lost')} recorded as lost")
    if not offenders and not total(run, "waived"):
        return Check("P3", what, OPEN, "nothing was waived")
    return Check("P3", what, *verdict(offenders, f"{share:.2%} waived"))


def _reapplied(trained: Trained) -> Check:
    """Waived segments were reapplied or are still held: byte counts must fit segment counts."""
    run, segment = trained.runs["bounded"], SEGMENT
    offenders, held = [], 0
    for number, rank in enumerate(run):
        books = rank["books"]
        owed = books["waived"] - books["reapplied"]
        held += owed
        # A chunk's last segment may be short: `owed * segment` is the most bytes.
        if not (owed == books["held_bytes"] == 0 or 0 < books["held_bytes"] <= owed * segment):
            offenders.append(
                f"rank {number} has not reapplied {owed} segments, and holds "
                f"{books['held_bytes']} B"
            )
    good = f"{total(run, 'reapplied')} reapplied, {held} held for the next step"
    return Check("P4", f"{trained.name}: waived values are reapplied", *verdict(offenders, good))


def _learns(trained: Trained) -> Check:
    """The final loss of bounded mode is within the range of another seed: see `prediction_limit`.

    Gloo's training with the same seed is one of the samples, so bounded mode may add several times
    the spread of the seeds on this machine to its loss.
    """
    what = f"{trained.name}: bounded loss costs no learning"
    gloo = trained.runs["gloo"]
    seeds = [losses_at_marks(run)[-1] for run in (gloo, *trained.others)]
    if len(seeds) < LEAST_SEEDS:
        return Check("P4", what, OPEN, "one seed has no spread to compare with")
    bounded, limit = losses_at_marks(trained.runs["bounded"])[-1], prediction_limit(seeds)
    if limit >= (begin := fmean(rank["losses"][0] for rank in gloo)):
        seen = f"limit {limit:.4f} by {len(seeds)} seeds, first loss {begin:.4f}"
        return Check("P4", what, OPEN, f"too few steps to tell: {seen}")
    seen = (
        f"last loss {bounded:.4f} against {seeds[0]:.4f}, limit {limit:.4f} by Gloo's "
        f"{len(seeds)} seeds"
    )
    return Check("P4", what, *verdict([seen] if bounded > limit else [], seen))
