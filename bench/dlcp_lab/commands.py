"""The commands that this package adds to `dlcpctl`, and the section of a report from their JSON.

Each imports its modules at its first use; see dlcpd/cli/extensions.py.
"""

from typing import Final

from dlcpd.cli.grammar import Commands, OnDemand, late

section: Final = OnDemand("dlcp_lab.report.section", "of_document")


def bench(commands: Commands) -> None:
    """Add `bench`, a group."""
    text = "Measure operations over dlcpd and over Gloo, in alternation."
    late(commands, "bench", text, "dlcp_lab.bench.arguments")


def demo(commands: Commands) -> None:
    """Add `demo`."""
    text = "Train two small models over Gloo, exact dlcpd and bounded dlcpd, and compare."
    late(commands, "demo", text, "dlcp_lab.demo.arguments")


def lab(commands: Commands) -> None:
    """Add `lab`, a group."""
    text = "Run an emulated leaf-spine fabric in network namespaces (root)."
    late(commands, "lab", text, "dlcp_lab.lab.arguments")


def verify(commands: Commands) -> None:
    """Add `verify`."""
    text = "Check properties P1-P5 with real daemons and injected loss."
    late(commands, "verify", text, "dlcp_lab.verify.arguments")
