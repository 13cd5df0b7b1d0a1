"""Claims of a scenario: figures, their limits, and the report."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from dlcp_lab.report.statistic import Spread
from dlcpd import __version__
from dlcpd.ctl import table
from dlcpd.ctl.output import Output

Rows = Sequence[Sequence[object]]
TIMES: Final = ("median (ms)", "p10..p90", "p99")


@dataclass(frozen=True, slots=True)
class Claim:
    """One figure and its limit."""

    what: str
    value: float
    limit: float
    at_most: bool = True  # else at least

    @property
    def holds(self) -> bool:
        """Whether the figure is within the limit."""
        return self.value <= self.limit if self.at_most else self.value >= self.limit

    def line(self) -> str:
        """Text of the verdict."""
        sign = "<=" if self.at_most else ">="
        word = "holds" if self.holds else "FALLS SHORT"
        return f"{word:11}  {self.what}: {self.value:.3g} {sign} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Report:
    """Results of a scenario."""

    name: str
    conditions: str  # the fabric, the seeds, the baseline
    header: tuple[str, ...]
    rows: Rows
    claims: Sequence[Claim]
    data: Any  # raw data, for JSON only

    def tell(self, output: Output) -> int:
        """Print and write it. Exit code 1 when a claim falls short."""
        output.line(f"{self.name}: {self.conditions}")
        output.line(table.render(self.header, self.rows))
        for claim in self.claims:
            output.line(claim.line())
        output.document(
            {
                "command": f"bench {self.name}",
                "version": __version__,
                "conditions": self.conditions,
                "header": self.header,
                "rows": self.rows,
                "claims": [{**asdict(claim), "holds": claim.holds} for claim in self.claims],
                "data": self.data,
            }
        )
        return 0 if all(claim.holds for claim in self.claims) else 1


@dataclass(slots=True)
class Findings:
    """Rows, claims and raw data, as a scenario collects them."""

    rows: list[list[object]] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def times(self, name: str, samples: Sequence[float], *more: object) -> Spread:
        """Add a row of times in seconds, with `more` cells; returns their spread."""
        spread = Spread.of(samples)
        self.rows.append([name, *milliseconds(spread), *more])
        self.data[name] = list(samples)
        return spread

    def claim(self, what: str, value: float, limit: float, *, at_most: bool = True) -> None:
        """Add a figure and its limit."""
        self.claims.append(Claim(what, value, limit, at_most))

    def report(self, name: str, conditions: str, *more: str) -> Report:
        """The report; `more` are the headers of the columns after the times."""
        return Report(name, conditions, ("", *TIMES, *more), self.rows, self.claims, self.data)


def milliseconds(spread: Spread) -> Iterator[str]:
    """Cells: median, 10th to 90th percentile, 99th percentile."""
    yield f"{spread.p50 * 1e3:.1f}"
    yield f"{spread.p10 * 1e3:.1f}..{spread.p90 * 1e3:.1f}"
    yield f"{spread.p99 * 1e3:.1f}"
