"""The formatter decides the layout of code. Only tables of constants keep a layout of their own."""

import ast
import subprocess
from pathlib import Path

import pytest

from tests.pages import ROOT

LITERALS = (ast.Dict, ast.List, ast.Set, ast.Tuple)
MAPPINGS = {"MappingProxyType", "dict", "frozenset", "set", "tuple"}
SKIP = "# fmt: " + "skip"


def python_files() -> list[Path]:
    """Of the repository; of a checkout without git, of the folders with code."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return [ROOT / name for name in listed.stdout.split()]


def last_lines_of_tables(tree: ast.Module) -> set[int]:
    """Constants of a module or class with a literal as value, and the cases of a test."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef)):
            found |= {one.end_lineno or 0 for one in node.body if _is_table(one)}
        for decorator in getattr(node, "decorator_list", []):
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith(
                "parametrize"
            ):
                found.add(decorator.end_lineno or 0)
    return found


def _is_table(node: ast.stmt) -> bool:
    if not isinstance(node, (ast.Assign, ast.AnnAssign)):
        return False
    value = node.value
    if isinstance(value, ast.Call):
        return ast.unparse(value.func) in MAPPINGS
    return isinstance(value, LITERALS)


def skips_outside_tables(text: str) -> list[int]:
    skips = {n for n, line in enumerate(text.splitlines(), 1) if line.rstrip().endswith(SKIP)}
    return sorted(skips - last_lines_of_tables(ast.parse(text))) if skips else []


def test_only_tables_of_constants_keep_their_layout() -> None:
    files = python_files()
    if not files:
        pytest.skip("no checkout of git")
    wrong = [
        f"{file.relative_to(ROOT)}:{line}"
        for file in files
        for line in skips_outside_tables(file.read_text())
    ]
    assert wrong == []


def test_a_call_with_a_layout_of_its_own_is_found() -> None:
    assert skips_outside_tables(f"A = {{\n1: 2}}  {SKIP}\nf(\n1)  {SKIP}\n") == [4]
