"""A class name exists once per package, so that a name in a traceback or a page finds its class."""

import ast
from collections import Counter

import pytest

from tests.pages import ROOT


@pytest.mark.parametrize("package", ["client/dlcp_client"])
def test_a_class_name_exists_once(package: str) -> None:
    names = Counter(
        node.name
        for file in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []
