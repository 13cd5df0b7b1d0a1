"""What several commands of this package have in common on the command line."""

import argparse
from typing import Final

from dlcp_lab.report.amounts import bound
from dlcpd.contract.policy import DEFAULT_MAX_LOSS
from dlcpd.ctl.grammar import Need, whole

MAX_SEED: Final = 1 << 31
TORCH: Final = Need("torch", "torch", "client")
SCIKIT_LEARN: Final = Need("sklearn", "scikit-learn", "demo")  # the digits to learn


def add_policy(made: argparse.ArgumentParser) -> None:
    """How a command's operations lose data, and by which seed."""
    made.add_argument("--mode", choices=("exact", "bounded"), default="exact")
    made.add_argument(
        "--max-loss",
        type=bound,
        default=DEFAULT_MAX_LOSS,
        metavar="F",
        help="bound of bounded mode (%(default)s)",
    )
    made.add_argument("--seed", type=whole(0, MAX_SEED), default=1, help="(%(default)s)")
