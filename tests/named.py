"""Tests that tables name."""

import ast
from pathlib import Path


def has_function(file: Path, name: str) -> bool:
    """Whether a module has a function of this name at its top level."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body)
