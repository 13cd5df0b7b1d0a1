"""Command-line arguments that several commands of this package share."""

import argparse
from typing import Final

from dlcp_lab.report.amounts import bound
from dlcpd.contract.policy import DEFAULT_MAX_LOSS
from dlcpd.ctl.grammar import Need, whole

MAX_SEED: Final = 1 << 31
TORCH: Final = Need("torch", "torch", "client")
SCIKIT_LEARN: Final = Need("sklearn", "scikit-learn", "demo")  # the digits data set


def add_policy(made: argparse.ArgumentParser) -> None:
    """The loss policy of a command's operations, and the seed."""
    add_mode(made)
    made.add_argument(
        "--seed", type=whole(0, MAX_SEED), default=1, help="random seed (%(default)s)"
    )


def add_mode(made: argparse.ArgumentParser) -> None:
    """The loss policy alone."""
    made.add_argument(
        "--mode", choices=("exact", "bounded"), default="exact", help="loss policy (%(default)s)"
    )
    made.add_argument(
        "--max-loss",
        type=bound,
        default=DEFAULT_MAX_LOSS,
        metavar="F",
        help="bound of the bounded mode (%(default)s)",
    )
