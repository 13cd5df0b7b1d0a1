"""The compiled form of the transfer layer: the same datagrams, and never that of another source."""

import ast
import os
import re
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from dlcpd import transfer_form
from dlcpd.transfer_form import BUILT, COMPILED, INTERPRETED, PACKAGE, SETTING, SOURCES, digest

ROOT = Path(__file__).parents[2]
NAME = "dlcpd.core.rtt"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with one module that has a compiled form."""
    source = tmp_path / "core" / "rtt.py"
    source.parent.mkdir()
    source.write_text("MIN_RTO = 1\n")
    extension = tmp_path / BUILT / "core" / f"rtt{EXTENSION_SUFFIXES[0]}"
    extension.parent.mkdir(parents=True)
    extension.touch()
    (tmp_path / BUILT / SOURCES).write_text(f"{NAME} {digest(source)}\n")
    return tmp_path


def test_a_build_of_the_present_source_is_imported(package: Path) -> None:
    [(name, at)] = transfer_form._built(package).items()  # noqa: SLF001
    assert name == NAME and at.suffix in EXTENSION_SUFFIXES[0] and at.exists()


def test_a_build_of_another_source_is_not(package: Path) -> None:
    (package / "core" / "rtt.py").write_text("MIN_RTO = 2\n")
    assert not transfer_form._built(package)  # noqa: SLF001


def test_one_extension_that_is_missing_leaves_all_interpreted(package: Path) -> None:
    other = package / "core" / "path.py"
    other.write_text("")
    with (package / BUILT / SOURCES).open("a") as note:
        note.write(f"dlcpd.core.path {digest(other)}\n")
    assert not transfer_form._built(package)  # noqa: SLF001


@pytest.mark.parametrize("damaged", ["", "dlcpd.core.rtt", "dlcpd.core.gone 00", "\0 \0 \0", "é é"])
def test_a_damaged_note_leaves_all_interpreted(package: Path, damaged: str) -> None:
    (package / BUILT / SOURCES).write_bytes(damaged.encode())
    assert not transfer_form._built(package)  # noqa: SLF001


def fields(source: Path) -> dict[str, list[str]]:
    """By class: the fields of its dataclass, in order."""
    return {
        node.name: [
            each.target.id
            for each in node.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        ]
        for node in ast.parse(source.read_text()).body
        if isinstance(node, ast.ClassDef)
    }


def attributes(types: Path) -> dict[str, list[str]]:
    """By class: the attributes that a .pxd file declares, in order."""
    found = dict[str, list[str]]()
    for line in types.read_text().splitlines():
        if made := re.match(r"cdef class (\w+):", line):
            names = found[made[1]] = []
        elif declared := re.match(r"    cdef public (?:long long|\w+) (.*)", line):
            names += declared[1].split(", ")
    return found


@pytest.mark.parametrize(
    "types", sorted(PACKAGE.rglob("*.pxd")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_attributes_are_declared_in_the_order_of_the_fields(types: Path) -> None:
    """The compiled constructor takes positional arguments in the order of the .pxd file."""
    declared = attributes(types)
    of_source = fields(types.with_suffix(".py"))
    assert declared and all(declared[name] == of_source[name] for name in declared)


def run(form: str, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=os.environ | {SETTING: form},
        timeout=100,
    )
    return done.stdout.splitlines()


def test_both_forms_send_the_same_datagrams() -> None:
    """Of one seed, byte for byte, in every scenario."""
    if not (PACKAGE / BUILT / SOURCES).exists():
        pytest.skip("there was no compiler: the transfer layer is interpreted only")
    interpreted = run(INTERPRETED, "-m", "dlcp_lab.simulation.scenarios")
    compiled = run(COMPILED, "-m", "dlcp_lab.simulation.scenarios")
    assert (interpreted[0], compiled[0]) == (INTERPRETED, COMPILED), "`make compiled` builds again"
    assert interpreted[1:] == compiled[1:] and len(compiled) > 8
