"""The name of a class exists once per package: a reader finds the class by its name."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("dlcpd", "client/dlcp_client", "switchcfg", "bench/dlcp_lab")


def places(package: Path) -> dict[str, list[str]]:
    """Files and lines of the classes of a package, by name."""
    found = defaultdict(list)
    for file in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(f"{file.relative_to(package.parent)}:{node.lineno}")
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_the_name_of_a_class_exists_once(package: str) -> None:
    found = places(ROOT / package)
    assert found
    assert {name: where for name, where in found.items() if len(where) > 1} == {}


def test_a_second_class_is_found(tmp_path: Path) -> None:
    (tmp_path / "package" / "inner").mkdir(parents=True)
    (tmp_path / "package" / "a.py").write_text("class One:\n    class Two: ...\n")
    (tmp_path / "package" / "inner" / "b.py").write_text("class Two: ...\n")
    assert places(tmp_path / "package") == {
        "One": ["package/a.py:1"],
        "Two": ["package/a.py:2", "package/inner/b.py:1"],
    }
