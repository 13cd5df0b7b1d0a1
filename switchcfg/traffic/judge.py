"""Judges how a network treats DSCP and ECN, from counts of sent and arrived datagrams. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from switchcfg.intent.classes import TrafficClass

NOT_ECT, ECT0, CE = 0, 2, 3
TAGS, LOAD = 0, 1  # phases
SLACK = 0.05  # fraction by which a later class may keep more than an earlier one

Counts = Mapping[tuple[int, int, int], int]  # (phase, TOS sent, TOS arrived) -> datagrams


@dataclass(frozen=True, slots=True)
class Row:
    """The result for one code point."""

    name: str  # class and drop precedence
    dscp: int
    tag: str  # "honoured", "rewritten to N", "bleached" or "lost"
    ecn: str  # fate of ECT(0): "survives", "cleared" or "lost"
    kept: float | None  # fraction that arrived under load; None: no load was sent
    passes: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for one direction between two hosts."""

    rows: tuple[Row, ...]
    order: str  # "in order", or how classes and drop precedences are misordered; "" without a load
    paths: int  # distinct paths that source ports reach

    @property
    def passes(self) -> bool:
        return not self.problems

    @property
    def problems(self) -> tuple[str, ...]:
        """Failed code points, and a wrong order under load, one text each."""
        rows = tuple(
            f"{row.name} (DSCP {row.dscp}): tag {row.tag}, ECN {row.ecn}"
            for row in self.rows
            if not row.passes
        )
        return rows if self.order in {"", "in order"} else (*rows, f"under load: {self.order}")


def points(classes: Sequence[TrafficClass]) -> list[tuple[str, int]]:
    """(name, DSCP) of every code point; the first should lose least, the last most."""
    return [
        (each.name if len(each.dscp) == 1 else f"{each.name}, rank {rank}", dscp)
        for each in classes
        for rank, dscp in enumerate(each.dscp)
    ]


def judge(
    classes: Sequence[TrafficClass], sent: Mapping[int, int], counts: Counts, paths: int
) -> Verdict:
    """The verdict. `sent`: TOS -> datagrams of the load; empty without a load."""
    rows = tuple(_row(name, dscp, sent, counts) for name, dscp in points(classes))
    return Verdict(rows, _order(classes, rows) if sent else "", paths)


def _row(name: str, dscp: int, sent: Mapping[int, int], counts: Counts) -> Row:
    plain, marked = dscp << 2 | NOT_ECT, dscp << 2 | ECT0
    arrived = {tos >> 2 for (phase, was, tos) in counts if phase == TAGS and was in {plain, marked}}
    if not arrived:
        tag = "lost"
    elif arrived == {dscp}:
        tag = "honoured"
    else:
        other = min(arrived - {dscp})
        tag = f"rewritten to {other}" if other else "bleached"
    bits = {tos & 3 for (phase, was, tos) in counts if phase == TAGS and was == marked}
    ecn = "survives" if bits and bits <= {ECT0, CE} else "cleared" if bits else "lost"
    kept = None
    if loaded := sent.get(plain, 0) + sent.get(marked, 0):
        here = sum(
            n for (phase, was, _), n in counts.items() if phase == LOAD and was in {plain, marked}
        )
        kept = here / loaded
    return Row(name, dscp, tag, ecn, kept, tag == "honoured" and ecn == "survives")


def _order(classes: Sequence[TrafficClass], rows: Sequence[Row]) -> str:
    """The first violation, or "in order": a class keeps no less than later ones, and a drop
    precedence no less than the next."""
    kept = {row.dscp: row.kept or 0.0 for row in rows}
    if min(kept.values()) > 1.0 - SLACK:
        return "no packet was lost: the load is too small to judge the order of drops"
    best = kept[classes[0].dscp[0]]
    if best < 1.0 - SLACK:
        return f"{classes[0].name} is served first, and only {best:.0%} of it arrived"
    for each in classes:
        for high, low in pairwise(each.dscp):
            if kept[low] > kept[high] + SLACK:
                return f"{each.name}: more of DSCP {low} arrived than of {high}"
    means = [(each.name, sum(kept[d] for d in each.dscp) / len(each.dscp)) for each in classes]
    for (before, more), (behind, less) in pairwise(means):
        if less > more + SLACK:
            return f"more of {behind} arrived than of {before}"
    return "in order"


def lines(verdict: Verdict) -> list[str]:
    """The verdict as a table, then its order and its number of paths."""
    head = ("", "DSCP", "tag", "ECN", "kept", "")
    table = [head] + [
        (
            row.name,
            str(row.dscp),
            row.tag,
            row.ecn,
            "-" if row.kept is None else f"{row.kept:.0%}",
            "pass" if row.passes else "FAIL",
        )
        for row in verdict.rows
    ]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    out = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
    untested = "not tested: give --load RATE, above the capacity of the path"
    out.append(f"under load: {verdict.order or untested}")
    out.append(f"paths that source ports reach: {verdict.paths}")
    return out
