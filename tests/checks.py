"""Numbered checks: `make attack` and `make e2e-deploy` print a row for each, with what it saw.

A plugin of pytest, see tests/conftest.py.
"""

from collections.abc import Callable
from pathlib import PurePosixPath

import pytest

Measured = Callable[[str], None]


@pytest.fixture
def measured(record_property: Callable[[str, object], None]) -> Measured:
    """Say in the table what a check saw."""

    def say(text: str) -> None:
        record_property("measured", text)

    return say


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        mark = item.get_closest_marker("check")
        if mark is not None:
            number, title = mark.args
            item.user_properties.append(("check", f"{number:>3}  {title}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    tables: dict[str, dict[str, list[tuple[str, str]]]] = {}
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            properties = dict(getattr(report, "user_properties", ()))  # a file that failed has none
            if "check" in properties:
                found = (outcome, str(properties.get("measured", "")))
                rows = tables.setdefault(PurePosixPath(report.nodeid).parent.name, {})
                rows.setdefault(str(properties["check"]), []).append(found)
    for name, rows in sorted(tables.items()):
        terminalreporter.section(f"{name}: one row per check")
        for check, results in sorted(rows.items()):
            bad = [outcome for outcome, _ in results if outcome != "passed"]
            saw = "; ".join(text for _, text in results if text)
            terminalreporter.line(
                f"{check}: {', '.join(bad) or 'holds'}{' - ' if saw else ''}{saw}"
            )
