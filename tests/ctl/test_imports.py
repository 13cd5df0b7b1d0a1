"""A command imports what it runs, and no other command's modules."""

import subprocess
import sys

import pytest

LISTS = """
import sys
from dlcpd.cli.extensions import installed
from dlcpd.ctl.arguments import parser
grammar = parser({}, installed())
if sys.argv[1:]:
    grammar.parse_args(sys.argv[1:])
else:
    grammar.format_help()
print(*sorted(sys.modules))
"""
HEAVY = {"numpy", "asyncio", "torch", "dlcp_client", "dlcpd.ledger", "dlcpd.doctor.checks"}


def imported(*words: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", LISTS, *words], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "words", [(), ("status",), ("top",), ("drain",), ("stop",), ("config", "check", "x")]
)
def test_an_operating_command_imports_no_other(words: tuple[str, ...]) -> None:
    found = imported(*words)
    assert found & HEAVY == set()
    assert [name for name in found if name.startswith("dlcp_lab.")] == ["dlcp_lab.commands"]


MOST = 265  # modules, as of today; 0.14 s of CPU time. Python alone has some 60
RUNS = """
import sys
from dlcpd.ctl.main import main
try:
    sys.exit(main(sys.argv[1:]))
finally:
    print(*sys.modules, file=sys.stderr)
"""


@pytest.mark.parametrize(
    "words",
    [("--help",), ("--version",), ("status", "--socket", "/absent"),
     ("health", "--socket", "/absent")],
    ids=" ".join,
)  # fmt: skip
def test_a_command_for_probes_imports_little_as_it_runs(words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", RUNS, *words], capture_output=True, text=True, check=False
    )
    found = set(done.stderr.splitlines()[-1].split())
    assert "dlcpd.ctl.main" in found and len(found) <= MOST
    assert found & HEAVY == set()


def test_the_help_imports_no_messages() -> None:
    assert imported() & {"msgspec", "dlcpd.contract.messages"} == set()


def test_a_command_of_the_lab_imports_its_own_grammar() -> None:
    found = imported("lab", "status")
    assert "dlcp_lab.lab.arguments" in found
    assert "dlcp_lab.bench.arguments" not in found
