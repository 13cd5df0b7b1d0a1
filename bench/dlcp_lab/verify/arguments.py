"""The grammar of `dlcpctl verify`."""

import argparse

from dlcp_lab.ranks.digits import MAX_RANKS
from dlcp_lab.report.amounts import injected
from dlcp_lab.report.arguments import TORCH, add_policy
from dlcp_lab.verify.command import verify
from dlcpd.cli.grammar import prepare, whole


def fill(made: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    prepare(made, verify, needs=(TORCH,))
    made.add_argument(
        "--hosts", type=whole(2, MAX_RANKS), default=4, help="number of hosts (%(default)s)"
    )
    made.add_argument(
        "--loss",
        type=injected,
        default=0.05,
        metavar="F",
        help="fraction of datagrams to drop at each host's sockets (%(default)s)",
    )
    add_policy(made)
