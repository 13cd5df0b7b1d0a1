"""How each line of a page is executed: an explicit table, in which no line may be missing."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests import pages
from tests.pages import ROOT
from tests.tooling.shell import Shell

SHELL: Final = ("sh",)
PYTHON: Final = "python "


@dataclass(frozen=True)
class Run:
    """Executed by this test, as it stands or as `line`, the same for less time or another place."""

    line: str = ""
    prints: str = ""  # is in what it prints
    code: int = 0
    netns: bool = False  # needs root and an emulated fabric; skipped by name without


@dataclass(frozen=True)
class Elsewhere:
    """Executed by another test of this suite, "tests/file.py::name", or by a stage of CI."""

    by: str
    has: str = ""  # is in the test's source: what it types instead

    def check(self) -> None:
        """Raises: AssertionError where there is no such test, or no such stage."""
        where, _, name = self.by.partition("::")
        text = (ROOT / where).read_text()
        if where.endswith(".py"):
            made = [
                ast.get_source_segment(text, node) or ""
                for node in ast.walk(ast.parse(text))
                if isinstance(node, ast.FunctionDef) and node.name == name
            ]
            assert len(made) == 1, f"{where} has no {name}"
            assert self.has in made[0], f"{self.by} has no {self.has!r}"
        else:
            assert name in text.split("for target in", 1)[1].splitlines()[0], f"{where}: {name}"


Table = Mapping[str, Run | Elsewhere]


def typed(page: Path) -> list[str]:
    """All lines of the page that are for a shell, from top to bottom."""
    return [step for step in steps(page) if not step.startswith(PYTHON)]


def steps(page: Path) -> list[str]:
    """What the page says to do, from top to bottom: lines for a shell, and "python N" for its Nth
    block of Python."""
    found, programs = list[str](), 0
    for block in pages.blocks(page):
        if block.language in SHELL:
            found += block.typed
        elif block.language == "python":
            found.append(f"{PYTHON}{programs}")
            programs += 1
    return found


def each(page: Path, table: Table) -> "list[Any]":
    """A parameter for each step, in the order of the page."""
    return [
        pytest.param(
            step,
            marks=[pytest.mark.netns] if getattr(table.get(step), "netns", False) else [],
            id=step,
        )
        for step in steps(page)
    ]


def complete(page: Path, table: Table) -> None:
    """Raises: AssertionError where a line is not in the table, or the table has one too many."""
    missing = [line for line in typed(page) if line not in table]
    assert not missing, f"{page.name}: not in the table: {missing}"
    left = [line for line in table if line not in typed(page)]
    assert not left, f"{page.name}: not on the page: {left}"


def done(line: str, how: Run | Elsewhere, shell: Shell) -> str:
    """Execute a line, or find who else does; what it printed. Raises: AssertionError."""
    if isinstance(how, Elsewhere):
        how.check()
        return ""
    printed = shell.run(how.line or line, how.code)
    assert how.prints in printed, printed
    return printed
