"""Results and verdicts of `dlcpctl demo`. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from dlcp_lab.report.checks import OPEN, Check, verdict
from dlcp_lab.report.measured import WORDS, Gap, attempt, figure
from dlcp_lab.report.statistic import Spread, quotient, slowest
from dlcp_lab.training.traffic_seen import Seen, together
from dlcpd.contract.policy import DEFAULT_MAX_LOSS

GLOO: Final = "Gloo"
DLCPD: Final = "dlcpd"
SKIPPED: Final = 3  # steps of warm-up: connections, buckets, and dlcpd's exact steps
GAIN: Final = 1.05  # a ratio of times below it is no gain


@dataclass(frozen=True, slots=True)
class Turns:
    """The training over Gloo and over dlcpd. `ranks`: what `turns_rank.run` returned."""

    ranks: Sequence[dict[str, Any]]
    fair: bool  # the network was the same for both, and times may be compared

    def times(self, name: str) -> list[float]:
        """Seconds of each step that counts, of the slowest rank."""
        return slowest([rank["lanes"][name]["times"] for rank in self.ranks])[SKIPPED:]

    def losses(self, name: str) -> list[float]:
        """Training loss by step, mean of the ranks."""
        curves = [rank["lanes"][name]["losses"] for rank in self.ranks]
        return [fmean(of_ranks) for of_ranks in zip(*curves, strict=True)]

    def digests(self, name: str) -> set[str]:
        """Of the parameters of all ranks: one, if the replicas are equal."""
        return {rank["lanes"][name]["digest"] for rank in self.ranks}

    def score(self, name: str) -> float:
        """On data that no rank trained with, 0 to 1."""
        return fmean(rank["lanes"][name]["score"] for rank in self.ranks)

    def total(self, count: str) -> int:
        """A count of dlcpd's ledger, sum of the ranks."""
        return sum(rank["books"][count] for rank in self.ranks)

    @property
    def network(self) -> Seen:
        """Datagrams by class and path, sum of the ranks."""
        return together(rank["books"]["network"] for rank in self.ranks)

    def gains(self) -> tuple[float, float]:
        """Gloo's time over dlcpd's: of the medians, and of the 99th percentiles.

        Raises: NotMeasured if a transport has no step that counts.
        """
        gloo, dlcpd = Spread.of(self.times(GLOO)), Spread.of(self.times(DLCPD))
        return quotient(gloo.p50, dlcpd.p50), quotient(gloo.p99, dlcpd.p99)

    def document(self) -> dict[str, Any]:
        """For --json."""
        return {
            name: {
                "step_seconds": self.times(name),
                "losses": self.losses(name),
                "accuracy": self.score(name),
                "digests": sorted(self.digests(name)),
            }
            for name in (GLOO, DLCPD)
        }


def header(turns: Turns) -> list[str]:
    """Of the table. Times are shown where they say something about a network."""
    times = ["step p50 (ms)", "p99 (ms)", "times as fast"] if turns.fair else []
    return ["over", *times, "waived", "reapplied", "accuracy"]


def rows(turns: Turns) -> Iterator[list[object]]:
    """Cells of the table: a row for each transport."""
    for name in (GLOO, DLCPD):
        is_dlcpd = name == DLCPD
        yield [
            f"{name}, bounded loss of 1 %" if is_dlcpd else name,
            *(_time_cells(turns, name) if turns.fair else ()),
            turns.total("waived") if is_dlcpd else None,
            turns.total("reapplied") if is_dlcpd else None,
            f"{turns.score(name):.3f}",
        ]


def _time_cells(turns: Turns, name: str) -> list[object]:
    """Median, 99th percentile, and dlcpd's gain."""
    spread = figure(lambda: Spread.of(turns.times(name)))
    if spread is None:
        return [WORDS, None, None]
    gains = figure(turns.gains) if name == DLCPD else None
    gain = f"{gains[0]:.2f}" if gains else None
    return [f"{spread.p50 * 1e3:.0f}", f"{spread.p99 * 1e3:.0f}", gain]


def answer(turns: Turns) -> str:
    """One sentence: whether dlcpd was faster here, and what the model learned."""
    gains = attempt({"": "times"}, turns.gains)
    if isinstance(gains, Gap):
        return f"Times were not measured: {gains.reason} after {SKIPPED} steps of warm-up."
    middle, tail = gains
    gloo, dlcpd = turns.score(GLOO), turns.score(DLCPD)
    learned = f"accuracy {dlcpd:.3f}, Gloo's {gloo:.3f}, after {len(turns.losses(DLCPD))} steps"
    if middle >= GAIN:
        return (
            f"On this network dlcpd's steps were {middle:.1f} times as fast as Gloo's "
            f"({tail:.1f} times at p99); {learned}."
        )
    return f"On this network dlcpd gained nothing: {middle:.2f} times as fast as Gloo; {learned}."


def judge(turns: Turns) -> Iterator[Check]:
    """The promises that so few steps show."""
    sets = len(turns.digests(DLCPD))
    bad = [] if sets == 1 else [f"{sets} different sets of parameters"]
    good = f"{len(turns.ranks)} ranks, bit for bit"
    yield Check("P2", "all ranks hold the same model", *verdict(bad, good))
    yield _bound(turns)
    yield _reapplied(turns)


def _bound(turns: Turns) -> Check:
    what, sent = "loss within the bound", turns.total("sent")
    waived, lost = turns.total("waived"), turns.total("lost")
    share = waived / max(sent, 1)
    bad = [f"{share:.2%} waived, bound {DEFAULT_MAX_LOSS:.2%}"] if share > DEFAULT_MAX_LOSS else []
    bad += [f"senders waived {waived}, owners miss {lost}"] if waived != lost else []
    if not bad and not waived:
        return Check("P3", what, OPEN, "nothing was waived")
    return Check("P3", what, *verdict(bad, f"{share:.2%} of {sent} segments waived"))


def _reapplied(turns: Turns) -> Check:
    bad, held = [], 0
    for number, rank in enumerate(turns.ranks):
        books = rank["books"]
        owed = books["waived"] - books["reapplied"]
        held += owed
        if owed < 0 or (owed == 0) != (books["held_bytes"] == 0):
            bad.append(
                f"rank {number} has not reapplied {owed} segments, and holds "
                f"{books['held_bytes']} B"
            )
    good = f"{turns.total('reapplied')} reapplied, {held} held for the next step"
    return Check("P4", "waived values are reapplied", *verdict(bad, good))
