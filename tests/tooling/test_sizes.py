"""Sizes beyond which a class, a file or a function holds more than one idea (CONTRIBUTING.md)."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("dlcpd", "client", "bench", "switchcfg")
METHODS, FILE, FUNCTION = 25, 350, 60  # lines of a function without its docstring


def methods(node: ast.ClassDef) -> int:
    found = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    return sum(not any("overload" in ast.unparse(d) for d in f.decorator_list) for f in found)


def lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    whole = (node.end_lineno or 0) - node.lineno + 1
    if ast.get_docstring(node) is None:
        return whole
    text = node.body[0]
    return whole - (text.end_lineno or 0) + text.lineno - 1


def too_large(name: str, text: str) -> Iterator[str]:
    if text.count("\n") > FILE:
        yield name
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ClassDef() if methods(node) > METHODS:
                yield f"{name}::{node.name}"
            case ast.FunctionDef() | ast.AsyncFunctionDef() if lines(node) > FUNCTION:
                yield f"{name}::{node.name}"


def test_no_class_file_or_function_is_too_large() -> None:
    files = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
    assert len(files) > 500
    found = {
        each for file in files for each in too_large(str(file.relative_to(ROOT)), file.read_text())
    }
    assert found == set()


def test_what_is_too_large_is_found() -> None:
    body = "".join(f"    def m{n}(self): ...\n" for n in range(METHODS + 1))
    long = 'def f():\n    """Of\n    lines."""\n' + "    pass\n" * FUNCTION
    assert list(too_large("x", f"class A:\n{body}")) == ["x::A"]
    assert list(too_large("x", long)) == ["x::f"] and not list(too_large("x", long[:-9]))
    assert list(too_large("x", "\n" * (FILE + 1))) == ["x"]
