"""Rows of the table of `bench step`, verdicts, and the cases without a gain. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from dlcp_lab.replay.pace import Pace, compute, crossing_at_best, waiting_at_best
from dlcp_lab.replay.shapes import FLOAT, Network, parameters
from dlcp_lab.report.checks import OPEN, Check, verdict
from dlcp_lab.report.measured import Rows
from dlcp_lab.report.statistic import Spread, least, median, most, pairs, quotient, slowest
from dlcp_lab.training.learning import distinct

SYSTEMS: Final = ("gloo", "hook", "cross-step")  # plain DDP, ddp.register, cross_step.register
WORTH: Final = 1.02  # a ratio below is no gain
UNEXPLAINED: Final = 0.3  # of the best step: a larger excess is a fault, not the cost of tails
HEADER: Final = (
    "network", "system", "step (ms)", "p10..p90", "gloo/this", "by seed", "hook/this", "by seed",
)  # fmt: skip

Ranks = list[dict[str, Any]]  # of one system in one run, see dlcp_lab.replay.step_rank


@dataclass(frozen=True, slots=True)
class ReplayedNetwork:
    """One network, as it was replayed."""

    name: str
    network: Network
    paces: list[Pace]
    line: float  # seconds of a step's gradients on the line

    def best(self) -> float:
        """Upper bound of the gain of cross-step, if everything but the order is perfect."""
        return waiting_at_best(self.paces) / crossing_at_best(self.paces)


@dataclass(frozen=True, slots=True)
class StepRow:
    """One system on one network. Ratios are of medians, one per seed; above 1 this is faster."""

    network: str
    system: str
    time: Spread  # seconds, of all seeds' steps
    over_gloo: list[float]
    over_hook: list[float]
    counts: dict[str, int]  # segments of all ranks and seeds
    samples: list[list[float]]  # per seed


def rows(name: str, runs: Sequence[dict[str, Ranks]]) -> Rows[StepRow]:
    """The rows of one network; `runs` are {system: ranks}, one per seed."""
    times = {
        system: [slowest([rank["times"] for rank in run[system]]) for run in runs]
        for system in SYSTEMS
    }
    found = Rows(StepRow)
    for system in SYSTEMS:
        ranks = [rank for run in runs for rank in run[system]]
        found.add({"network": name, "system": system}, partial(_row, name, system, times, ranks))
    return found


def _row(name: str, system: str, times: dict[str, list[list[float]]], ranks: Ranks) -> StepRow:
    """The row of one system. Raises: NotMeasured."""
    return StepRow(
        name,
        system,
        Spread.of([sample for samples in times[system] for sample in samples]),
        _ratios(times["gloo"], times[system]),
        _ratios(times["hook"], times[system]),
        _counts(ranks),
        times[system],
    )


def _ratios(reference: list[list[float]], measured: list[list[float]]) -> list[float]:
    return [quotient(median(a), median(b)) for a, b in pairs(reference, measured)]


def _counts(ranks: Ranks) -> dict[str, int]:
    return {name: sum(rank["counts"][name] for rank in ranks) for name in ranks[0]["counts"]}


def cells(row: StepRow) -> list[object]:
    """Cells of a row of the table."""
    time = row.time
    return [
        row.network,
        row.system,
        f"{time.p50 * 1e3:.0f}",
        f"{time.p10 * 1e3:.0f}..{time.p90 * 1e3:.0f}",
        *_ratio(row.over_gloo if row.system != "gloo" else []),
        *_ratio(row.over_hook if row.system != "hook" else []),
    ]


def _ratio(by_seed: Sequence[float]) -> tuple[object, object]:
    if not by_seed:
        return None, None
    return median(by_seed), f"{least(by_seed):.2f}..{most(by_seed):.2f}"


def about(case: ReplayedNetwork, scale: float) -> list[object]:
    """A network's row in the table of what was replayed."""
    size = parameters(case.network) * FLOAT
    return [
        case.name,
        len(case.network),
        f"{parameters(case.network) / scale / 1e6:.1f}",
        f"{size / 1e6:.1f}",
        f"{compute(case.paces) * 1e3:.0f}",
        f"{case.line * 1e3:.0f}",
        f"{waiting_at_best(case.paces) * 1e3:.0f}",
        f"{crossing_at_best(case.paces) * 1e3:.0f}",
        case.best(),
    ]


ABOUT: Final = (
    "network", "layers", "params (M)", "sent (MB)", "compute (ms)", "line (ms)",
    "waiting, best", "crossing, best", "ratio",
)  # fmt: skip


def honesty(case: ReplayedNetwork, found: Sequence[StepRow]) -> Iterator[str]:
    """Cases in which cross-step, or dlcpd at all, gains nothing, with the reason (P10).

    A system without a row is compared with no other.
    """
    by_system = {row.system: row for row in found}
    gloo, hook, crossed = (by_system.get(system) for system in SYSTEMS)
    if hook and crossed and (gain := median(crossed.over_hook)) < WORTH:
        yield (
            f"no gain on {case.name} from crossing the step: the plain hook takes {gain:.2f} "
            f"of the time of cross_step, because {_because(case)}"
        )
    for row in (hook, crossed):
        if gloo and row and (gain := median(row.over_gloo)) < WORTH:
            yield (
                f"no gain on {case.name} over Gloo: Gloo takes {gain:.2f} of the time of "
                f"{row.system}, because {_behind(case, gloo, row)}"
            )


def _behind(case: ReplayedNetwork, gloo: StepRow, row: StepRow) -> str:
    """Why Gloo is as fast or faster. A difference without an explanation is called so."""
    best = waiting_at_best(case.paces)
    over_gloo, over_dlcpd = gloo.time.p50 - best, row.time.p50 - best
    again = row.counts["retransmitted"] / max(row.counts["sent"], 1)
    seen = (
        f"the best waiting step takes {best * 1e3:.0f} ms, Gloo's {over_gloo * 1e3:+.0f} ms, "
        f"dlcpd's {over_dlcpd * 1e3:+.0f} ms, with {again:.1%} of its segments retransmitted"
    )
    if over_dlcpd > UNEXPLAINED * best:
        return f"dlcpd leaves the line idle, and neither line nor computation explain it: {seen}"
    return f"the network loses nothing, and TCP fills the line: {seen}"


def _because(case: ReplayedNetwork) -> str:
    best = case.best()
    if best < WORTH:
        return (
            f"an ideal order gains {best:.2f} at most: the bytes that the forward pass needs "
            "first are ready last"
        )
    return (
        f"overheads use up the {best:.2f} that an ideal order would gain: pieces of 1 MiB, "
        "rendezvous, and two engines on shared cores"
    )


def judge(name: str, runs: Sequence[dict[str, Ranks]], *, exact: bool) -> Iterator[Check]:
    """Whether ranks hold equal weights and, in exact mode, all systems the same ones."""
    if not runs:
        yield Check("P2", f"{name}: ranks hold the same weights", OPEN, "no seed was measured")
        return
    apart = [
        f"seed {number + 1}, {system}: {len(distinct(_digests(ranks)))} sets of weights"
        for number, run in enumerate(runs)
        for system, ranks in run.items()
        if len(distinct(_digests(ranks))) > 1
    ]
    yield Check("P2", f"{name}: ranks hold the same weights", *verdict(apart, "bit for bit"))
    what = f"{name}: systems agree on the weights"
    if not exact:
        yield Check("P1", what, OPEN, "bounded: they may differ")
        return
    different = [
        f"seed {number + 1}: {len(found)} results"
        for number, run in enumerate(runs)
        if len(found := distinct([d for ranks in run.values() for d in _digests(ranks)])) > 1
    ]
    yield Check("P1", what, *verdict(different, "bit for bit, Gloo included"))


def _digests(ranks: Ranks) -> list[str]:
    return [rank["digest"] for rank in ranks]
