"""What can be typed after `dlcpctl demo`."""

from dlcp_lab.demo.command import demo
from dlcp_lab.report.arguments import SCIKIT_LEARN, TORCH
from dlcpd.ctl.grammar import Commands, command


def add(commands: Commands) -> None:
    """Add `demo`."""
    text = "Train two small models over Gloo, dlcpd exact and dlcpd bounded, and compare."
    made = command(commands, "demo", demo, text, needs=(TORCH, SCIKIT_LEARN))
    made.add_argument("--quick", action="store_true", help="fewer steps")
