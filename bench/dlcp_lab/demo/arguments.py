"""The grammar of `dlcpctl demo`."""

import argparse
from pathlib import Path

from dlcp_lab.demo.command import REPORT, SECONDS, demo
from dlcp_lab.report.amounts import scale
from dlcp_lab.report.arguments import SCIKIT_LEARN, TORCH
from dlcpd.cli.grammar import prepare, whole


def fill(made: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    prepare(made, demo, needs=(TORCH, SCIKIT_LEARN))
    made.add_argument(
        "--report",
        type=Path,
        default=REPORT,
        metavar="FILE",
        help="pictures of the results, one HTML file (%(default)s)",
    )
    made.add_argument(
        "--seconds",
        type=whole(1, 3600),
        default=round(SECONDS),
        metavar="N",
        help="time limit for the steps (%(default)s)",
    )
    made.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    made.add_argument(
        "--full",
        action="store_true",
        help="judge all promises: two tasks, exact and bounded, several seeds, on loopback with "
        "injected loss; writes no report",
    )
    steps = made.add_mutually_exclusive_group()
    steps.add_argument("--quick", action="store_true", help="with --full: fewer steps")
    steps.add_argument(
        "--share",
        type=scale,
        default=1.0,
        metavar="F",
        help="with --full: fraction of the steps (%(default)s)",
    )
