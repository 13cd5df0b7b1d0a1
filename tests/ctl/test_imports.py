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


@pytest.mark.parametrize("words", [(), ("status",), ("top",), ("drain",), ("config", "check", "x")])
def test_an_operating_command_imports_no_other(words: tuple[str, ...]) -> None:
    found = imported(*words)
    assert found & HEAVY == set()
    assert [name for name in found if name.startswith("dlcp_lab.")] == ["dlcp_lab.commands"]


def test_the_help_imports_no_messages() -> None:
    assert imported() & {"msgspec", "dlcpd.contract.messages"} == set()


def test_a_command_of_the_lab_imports_its_own_grammar() -> None:
    found = imported("lab", "status")
    assert "dlcp_lab.lab.arguments" in found
    assert "dlcp_lab.bench.arguments" not in found
