"""No Python process is started but by dlcpd/starter.py."""

import ast
import re
from pathlib import Path

import pytest

from tests.pages import ROOT

STARTER = ROOT / "dlcpd" / "starter.py"
FILES = sorted(
    file
    for folder in ("dlcpd", "client", "bench", "switchcfg")
    for file in (ROOT / folder).rglob("*.py")
)
# An error names the interpreter that lacks a package.
NAMES_IT = {ROOT / "dlcpd" / "cli" / "grammar.py"}
# Makes multiprocessing's server, whose command line multiprocessing writes; it sets PYTHONSAFEPATH.
FORKS = {ROOT / "bench" / "dlcp_lab" / "faults" / "trainer.py"}
# Replaces its own process by the starter's command line, in namespaces of the user.
AGAIN = {ROOT / "bench" / "dlcp_lab" / "demo" / "command.py"}
# The folder of temporary files alone, no process.
FOLDER_OF = {ROOT / "bench" / "dlcp_lab" / "emulation" / "scratch.py"}


def calls(file: Path, name: str) -> int:
    """How often a function of the starter is called."""
    found = [
        node.func for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)
    ]
    return sum(ast.unparse(function) == f"starter.{name}" for function in found)


@pytest.mark.parametrize(
    ("what", "where"),
    [
        (r"sys\.executable|_base_executable", {STARTER, *NAMES_IT}),
        (r"\bimport multiprocessing|\bfrom multiprocessing|torch\.multiprocessing",
         {*FORKS, *FOLDER_OF}),
        (r"os\.(exec|spawn|posix_spawn|system|popen)|concurrent\.futures\.process|ProcessPool",
         AGAIN),
        (r"import runpy|from runpy", {STARTER, ROOT / "bench/dlcp_lab/ranks/with_parent.py"}),
        # On another machine: no folder of its user, and no variable.
        (r"""["'\n]python3 (?!-I )""", set()),
    ],
)  # fmt: skip
def test_nothing_else_starts_a_python(what: str, where: set[Path]) -> None:
    assert {file for file in FILES if re.search(what, file.read_text())} == where


def test_every_start_has_the_environment_of_the_starter() -> None:
    """One for each command line, at least; a script for a shell says so in its own words."""
    starts = [file for file in FILES if calls(file, "command")]
    without = [file for file in starts if not calls(file, "environment")]
    assert len(starts) > 5
    assert without == [ROOT / "switchcfg" / "drivers" / "gnmi.py"]
    assert 'f"unset PYTHONPATH\\n' in without[0].read_text()
