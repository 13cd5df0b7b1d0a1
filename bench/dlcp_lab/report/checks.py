"""Verdicts on promises, and their report."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from dlcp_lab.report.statistic import NotMeasured
from dlcpd.cli import table

HELD: Final = "held"
BROKEN: Final = "BROKEN"
OPEN: Final = "not judged"  # too few events for a verdict
SHOWN: Final = 3  # offenders named in a verdict


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the table."""

    promise: str
    what: str
    verdict: str
    detail: str


def verdict(offenders: Sequence[str], good: str) -> tuple[str, str]:
    """Verdict and detail: the first offenders, or `good` when there is none."""
    if not offenders:
        return HELD, good
    more = f"; and {len(offenders) - SHOWN} more" if len(offenders) > SHOWN else ""
    return BROKEN, "; ".join(offenders[:SHOWN]) + more


def judged(promise: str, what: str, make: Callable[[], Check]) -> Check:
    """The check that `make` returns; one that is not judged, if it lacks a measurement."""
    try:
        return make()
    except NotMeasured as exc:
        return Check(promise, what, OPEN, f"not measured: {exc}")


def broken(checks: Sequence[Check]) -> list[str]:
    """Promises that a check found broken."""
    return sorted({check.promise for check in checks if check.verdict == BROKEN})


def report(checks: Sequence[Check]) -> Iterator[str]:
    """Lines of text: a table, then a summary."""
    rows = [(check.promise, check.what, check.verdict, check.detail) for check in checks]
    yield table.render(("promise", "what", "verdict", "seen"), rows, left=4)
    found = broken(checks)
    undecided = sum(check.verdict == OPEN for check in checks)
    if found:
        yield f"BROKEN: {', '.join(found)}"
    elif undecided:
        yield f"no promise is broken; {undecided} not judged"
    else:
        yield "all promises held"
