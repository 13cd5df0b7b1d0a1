"""Claims of a scenario: figures, their limits, and the report."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeVar

from dlcp_lab.report.amounts import show_beside
from dlcp_lab.report.measured import WORDS, Gap, attempt
from dlcp_lab.report.statistic import Sample, Spread
from dlcpd import __version__
from dlcpd.cli import table
from dlcpd.cli.output import Output

T = TypeVar("T")

Rows = Sequence[Sequence[object]]
TIMES: Final = ("median (ms)", "p10..p90", "p99")


@dataclass(frozen=True, slots=True)
class Claim:
    """One figure and its limit; no figure if it could not be measured."""

    what: str
    value: float | None
    limit: float
    at_most: bool = True  # else at least
    not_measured: str = ""  # the reason, if `value` is None

    @property
    def holds(self) -> bool:
        """Whether the figure was measured and is within the limit."""
        if self.value is None:
            return False
        return self.value <= self.limit if self.at_most else self.value >= self.limit

    def line(self) -> str:
        """Text of the verdict."""
        if self.value is None:
            return f"{WORDS}: {self.what}: {self.not_measured}"
        sign = "<=" if self.at_most else ">="
        word = "holds" if self.holds else "FALLS SHORT"
        return (
            f"{word:11}  {self.what}: {show_beside(self.value, self.limit)} {sign} {self.limit:g}"
        )


@dataclass(frozen=True, slots=True)
class Report:
    """Results of a scenario."""

    name: str
    conditions: str  # the fabric, the seeds, the baseline
    header: tuple[str, ...]
    rows: Rows
    gaps: Sequence[Gap]
    claims: Sequence[Claim]
    data: Any  # raw data, for JSON only

    def tell(self, output: Output) -> int:
        """Print and write it. Exit code 1 when a claim falls short or was not measured."""
        output.line(f"{self.name}: {self.conditions}")
        output.line(table.render(self.header, self.rows))
        for line in (*(gap.line() for gap in self.gaps), *(one.line() for one in self.claims)):
            output.line(line)
        output.document(
            {
                "command": f"bench {self.name}",
                "version": __version__,
                "conditions": self.conditions,
                "header": self.header,
                "rows": self.rows,
                "failed": [gap.document(()) for gap in self.gaps],
                "claims": [{**asdict(claim), "holds": claim.holds} for claim in self.claims],
                "data": self.data,
            }
        )
        return 0 if all(claim.holds for claim in self.claims) else 1


@dataclass(slots=True)
class Findings:
    """Rows, claims and raw data, as a scenario collects them; a failure becomes a row."""

    rows: list[list[object] | Gap] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def run(self, name: str, call: Callable[[], T]) -> T | None:
        """The result of one run; None, and a row with the error, if it failed.

        Raises: BadConfig.
        """
        result = attempt({"row": name}, call)
        if not isinstance(result, Gap):
            return result
        self.rows.append(result)
        return None

    def row(self, name: str, cells: Callable[[], Sequence[object]]) -> None:
        """Add a row: its name and `cells`, or the reason for which there are none."""
        self.rows.append(attempt({"row": name}, lambda: [name, *cells()]))

    def times(self, name: str, samples: Sequence[float], *more: object) -> Sample:
        """Add a row of times in seconds, with `more` cells. A cell that is a function is called.

        Its value may be used in a claim's function, if there are no samples as well.
        """
        self.data[name] = list(samples)
        self.row(name, lambda: [*milliseconds(Spread.of(samples)), *map(_cell, more)])
        return Sample(samples)

    def claim(
        self, what: str, value: float | Callable[[], float], limit: float, *, at_most: bool = True
    ) -> None:
        """Add a figure and its limit. A function may raise NotMeasured."""
        found = attempt({"claim": what}, value) if callable(value) else value
        if isinstance(found, Gap):
            self.claims.append(Claim(what, None, limit, at_most, found.reason))
        else:
            self.claims.append(Claim(what, found, limit, at_most))

    def report(self, name: str, conditions: str, *more: str) -> Report:
        """The report; `more` are the headers of the columns after the times."""
        return self.report_with(name, conditions, ("", *TIMES, *more))

    def report_with(self, name: str, conditions: str, header: tuple[str, ...]) -> Report:
        """The report, with the headers of all columns."""
        rows = [row.cells(len(header)) if isinstance(row, Gap) else row for row in self.rows]
        gaps = [row for row in self.rows if isinstance(row, Gap)]
        return Report(name, conditions, header, rows, gaps, self.claims, self.data)


def _cell(value: object) -> object:
    return value() if callable(value) else value


def milliseconds(spread: Spread) -> Iterator[str]:
    """Cells: median, 10th to 90th percentile, 99th percentile."""
    yield f"{spread.p50 * 1e3:.1f}"
    yield f"{spread.p10 * 1e3:.1f}..{spread.p90 * 1e3:.1f}"
    yield f"{spread.p99 * 1e3:.1f}"
