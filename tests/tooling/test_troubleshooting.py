"""docs/troubleshooting.md: every message that it explains is one that the code can print."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.pages import ROOT

PAGE: Final = ROOT / "docs" / "troubleshooting.md"
GAP: Final = "..."


def explained() -> list[str]:
    """First cells of the tables; a code span has one backtick around it, or two."""
    cells = re.findall(r"^\| (``? ?)(.+?)\1? \| ", PAGE.read_text().replace(" `` |", "`` |"), re.M)
    return [text.strip("` ") for _, text in cells]


def printed() -> Iterator[str]:
    """Every text of the programs, with GAP where they put names and numbers."""
    for package in ("dlcpd", "client"):
        for file in Path(ROOT, package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.JoinedStr):
                    parts = [
                        str(p.value) if isinstance(p, ast.Constant) else GAP for p in node.values
                    ]
                    yield "".join(parts)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield re.sub(r"%[.\d]*[a-z]", GAP, node.value)


@cache
def texts() -> frozenset[str]:
    """All of them; not made while tests are collected, which each worker does."""
    return frozenset(printed())


@pytest.mark.parametrize("message", explained())
def test_a_message_that_is_explained_can_be_printed(message: str) -> None:
    assert [text for text in texts() if text.endswith(message)]


def test_the_page_explains_something() -> None:
    assert len(explained()) > 30
