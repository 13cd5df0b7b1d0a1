"""What can be typed after `dlcpctl verify`."""

from dlcp_lab.ranks.digits import MAX_RANKS
from dlcp_lab.report.amounts import injected
from dlcp_lab.report.arguments import TORCH, add_policy
from dlcp_lab.verify.command import verify
from dlcpd.ctl.grammar import Commands, command, whole


def add(commands: Commands) -> None:
    """Add `verify`."""
    text = "Check promises P1-P5 on real hosts with injected loss."
    made = command(commands, "verify", verify, text, needs=(TORCH,))
    made.add_argument("--hosts", type=whole(2, MAX_RANKS), default=4)
    made.add_argument(
        "--loss",
        type=injected,
        default=0.05,
        metavar="F",
        help="loss to inject at each host's sockets (%(default)s)",
    )
    add_policy(made)
