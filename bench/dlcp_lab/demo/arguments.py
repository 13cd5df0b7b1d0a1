"""The grammar of `dlcpctl demo`."""

import argparse

from dlcp_lab.demo.command import demo
from dlcp_lab.report.amounts import scale
from dlcp_lab.report.arguments import SCIKIT_LEARN, TORCH
from dlcpd.ctl.grammar import prepare


def fill(made: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    prepare(made, demo, needs=(TORCH, SCIKIT_LEARN))
    steps = made.add_mutually_exclusive_group()
    steps.add_argument("--quick", action="store_true", help="fewer steps")
    steps.add_argument(
        "--share", type=scale, default=1.0, metavar="F", help="fraction of the steps (%(default)s)"
    )
