"""docs/reliability.md: its table of system calls has what the code counts and the tests fail."""

import re
from pathlib import Path

from tests.attack import test_failing_calls as of_engine
from tests.attack import test_failing_calls_of_control as of_control

ROOT = Path(__file__).parents[2]
COUNTED = [
    re.compile(r'f"(\w+_)\{kernel_errors\.name'),
    re.compile(r'kernel_errors\.count\([^()]*"(\w+)"'),
    re.compile(r'Failures\(count, "(\w+)"\)'),
]


def column(number: int) -> set[str]:
    """What stands in backticks in a column of the table."""
    page = (ROOT / "docs" / "reliability.md").read_text()
    table = page.partition("<!-- calls: begin -->")[2].partition("<!-- calls: end -->")[0]
    rows = [line.split("|")[1:-1] for line in table.strip().splitlines()[2:]]
    assert all(len(row) == 5 for row in rows)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row[number])}


def test_every_counter_of_a_failed_call_is_in_the_table() -> None:
    sources = [*(ROOT / "dlcpd").rglob("*.py")]
    text = "\n".join(file.read_text() for file in sources)
    found = {name.rstrip("_") + "_" for kind in COUNTED for name in kind.findall(text)}
    assert len(found) > 7
    assert found == column(4)


def test_every_call_that_tests_let_fail_is_in_the_table_and_the_other_way_round() -> None:
    calls = [*of_engine.IN_OPERATIONS, *of_engine.IN_REPORTS, *of_engine.FOR_SESSIONS]
    failing = {call.name.split()[0] for call in calls}
    failing |= {name for name, _, _ in of_control.CALLS} | set(of_control.OF_A_LINE)
    alone = {"select", "lseek", "setsockopt"}  # those of test_kernel_errors.py
    assert failing | alone == column(1)
