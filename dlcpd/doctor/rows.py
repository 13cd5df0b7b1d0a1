"""The result of a check, as a row."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from dlcpd.cli import table

HEADER: Final = ("", "check", "found")


class Verdict(Enum):
    """WARN: a training runs, slower or less safe; FAIL: it does not run."""

    PASS = "pass"  # noqa: S105  # no password
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Row:
    """`found`: a fact. `fix`: a command or a setting that solves the problem; "" = no problem."""

    check: str
    verdict: Verdict
    found: str
    fix: str = ""

    def __post_init__(self) -> None:
        if bool(self.fix) != (self.verdict is not Verdict.PASS):
            raise ValueError(f"{self.check}: a fix belongs to warn and fail, and to nothing else")

    def document(self) -> dict[str, Any]:
        """For --json."""
        return {
            "check": self.check,
            "verdict": self.verdict.value,
            "found": self.found,
            "fix": self.fix,
        }


def good(check: str, found: str) -> Row:
    """Nothing to do."""
    return Row(check, Verdict.PASS, found)


def warn(check: str, found: str, fix: str) -> Row:
    """A training runs, slower or less safe than it could."""
    return Row(check, Verdict.WARN, found, fix)


def fail(check: str, found: str, fix: str) -> Row:
    """A training will not run, or not with this peer."""
    return Row(check, Verdict.FAIL, found, fix)


def text(rows: Iterable[Row]) -> str:
    """A table, with each fix below its row."""
    return table.render(HEADER, list(_cells(rows)), left=len(HEADER))


def _cells(rows: Iterable[Row]) -> Iterator[tuple[str, str, str]]:
    for row in rows:
        yield row.verdict.value, row.check, row.found
        if row.fix:
            yield "", "", f"fix: {row.fix}"


def summary(rows: Iterable[Row]) -> str:
    """The number of rows by verdict, in a line."""
    verdicts = [row.verdict for row in rows]
    return ", ".join(f"{verdicts.count(verdict)} {verdict.value}" for verdict in Verdict)
