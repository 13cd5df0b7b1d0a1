"""What is expected of each test: dlcp's verdict, Gloo's, and a remark. One file per suite."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.conformance.outcomes import Outcome
from tests.conformance.suites import SUITES, expected_file

WHY: Final = "WHY?"  # a remark that somebody has to write
FEW: Final = 4  # files that the table names; of more it gives the number
REASON: Final = 160  # characters of a remark that the suite gave


@dataclass(frozen=True, slots=True)
class Row:
    """One test."""

    test: str
    ours: str  # "pass", "skip" or "fail"
    gloo: str
    remark: str = ""

    @property
    def behind(self) -> bool:
        """Whether Gloo passes and dlcp does not."""
        return self.gloo == "pass" and self.ours != "pass"


def read(path: Path) -> dict[str, Row]:
    """By test."""
    if not path.exists():
        return {}
    rows = (line.split(maxsplit=3) for line in path.read_text().splitlines() if line)
    return {row[2]: Row(row[2], row[0], row[1], "".join(row[3:])) for row in rows}


def write(path: Path, rows: Iterable[Row]) -> None:
    """In order."""
    lines = [f"{row.ours} {row.gloo} {row.test} {row.remark}".rstrip() for row in rows]
    path.write_text("\n".join(sorted(lines, key=lambda line: line.split()[2])) + "\n")


def rows(
    ours: Mapping[str, Outcome], gloo: Mapping[str, Outcome], before: Mapping[str, Row]
) -> list[Row]:
    """Both verdicts of each test. Remarks of tests that Gloo alone passes are written by hand, and
    kept; of others the suite's own reason is taken."""
    made = []
    for test in sorted(ours.keys() | gloo.keys()):
        mine, theirs = (each.get(test, Outcome(test, "absent")) for each in (ours, gloo))
        bare = Row(test, mine.verdict, theirs.verdict)
        held = before.get(test)
        if held is not None and held.ours == mine.verdict == "fail":
            remark = held.remark
        elif bare.behind:
            remark = held.remark if held is not None and held.behind else WHY
        elif mine.verdict != "pass":
            remark = reason(mine)
        else:
            remark = "" if theirs.verdict == "pass" else f"Gloo: {reason(theirs)}"
        made.append(Row(test, mine.verdict, theirs.verdict, remark))
    return made


def reason(outcome: Outcome) -> str:
    """The line of a detail that says most."""
    lines = [line.strip() for line in outcome.detail.splitlines() if line.strip()]
    if not lines:
        return ""
    errors = [line for line in lines if "Error: " in line or "no end within" in line]
    line = lines[0] if outcome.verdict == "skip" else [*lines, *errors][-1]
    return line[:REASON]


def differences(
    name: str,
    ours: Mapping[str, Outcome],
    gloo: Mapping[str, Outcome],
    only: Sequence[str],
    files: Sequence[str] = (),
) -> list[str]:
    """What is not as expected, in words. Without verdicts of Gloo, dlcp's alone are compared.

    `only`, `files`: the tests, and the files of a checkout, that were to run; none: all. A test of
    which nothing is written is expected to pass where Gloo passes.
    """
    said = []
    wanted = {
        test: row
        for test, row in read(expected_file(name)).items()
        if (not only or test in only) and (not files or test.partition("::")[0] in files)
    }
    for test in sorted(wanted.keys() | ours.keys()):
        row = wanted.get(test) or _unwritten(test, ours, gloo)
        for who, found, expect in (("dlcp", ours, row.ours), ("gloo", gloo, row.gloo)):
            if not found:
                continue
            outcome = found.get(test, Outcome(test, "absent"))
            if outcome.verdict != expect:
                verdict = f"{test}: {who}: {outcome.verdict}, expected {expect}"
                said.append(f"{verdict}\n{outcome.detail}".rstrip())
    return said


def _unwritten(test: str, ours: Mapping[str, Outcome], gloo: Mapping[str, Outcome]) -> Row:
    verdicts = [each[test].verdict if test in each else "absent" for each in (ours, gloo)]
    return Row(test, "pass" if verdicts[1] == "pass" else verdicts[0], verdicts[1])


# --- the table of a document ----------------------------------------------------------------

BEGIN: Final = "<!-- suites: begin -->"
END: Final = "<!-- suites: end -->"


def table() -> str:
    """In Markdown: of each suite how many tests pass, and why those do not that Gloo passes."""
    lines = [
        "| suite | tests | Gloo passes | dlcp passes | Gloo passes and dlcp does not |",
        "|---|---|---|---|---|",
    ]
    for name, suite in SUITES.items():
        held = list(read(expected_file(name)).values())
        if not held:
            continue
        paths = {row.test.rpartition("::")[0] for row in held}
        files = sorted(path.rpartition("/")[2].removesuffix(".py") for path in paths if path)
        named = ", ".join(files) if len(files) <= FEW else f"{len(files)} files"
        title = suite.title + (f": {named}" if files else "")
        behind = Counter(row.remark for row in held if row.behind)
        why = "; ".join(f"{count}: {remark}" for remark, count in behind.most_common())
        gloo, ours = (
            sum(verdict == "pass" for verdict in verdicts)
            for verdicts in ([row.gloo for row in held], [row.ours for row in held])
        )
        lines.append(f"| {title} | {len(held)} | {gloo} | {ours} | {why or 'none'} |")
    return "\n".join(lines)


def write_table(file: Path) -> None:
    """Put it between the marks of a file."""
    before, _, rest = file.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    file.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}")
