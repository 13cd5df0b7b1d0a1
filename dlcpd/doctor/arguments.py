"""The grammar of `dlcpctl doctor`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dlcpd.cli.grammar import Commands, OnDemand, command, whole

PORT: Final = 7417  # TCP, of --listen
SECONDS: Final = 600  # that a listener runs; time to start the command on the other host
DAY: Final = 86_400


def add(commands: Commands, environ: Mapping[str, str]) -> None:
    """The command and its arguments."""
    about = "Check this host, and the network to other hosts, before the first training."
    made = command(commands, "doctor", OnDemand("dlcpd.doctor.command", "doctor"), about)
    made.add_argument(
        "--config", type=Path, metavar="FILE", help="configuration of the daemon (default: none)"
    )
    made.add_argument(
        "--socket",
        default=environ.get("DLCPD_SOCKET"),
        metavar="S",
        help="session socket (default: that of the configuration)",
    )
    what = made.add_mutually_exclusive_group()
    what.add_argument(
        "--peer",
        nargs="+",
        default=[],
        metavar="HOST",
        help="also check the network to these hosts, which run `dlcpctl doctor --listen`",
    )
    what.add_argument("--listen", action="store_true", help="answer the --peer of other hosts")
    made.add_argument(
        "--port",
        type=whole(1, 65535),
        default=PORT,
        metavar="P",
        help="TCP port of --listen (%(default)s)",
    )
    made.add_argument(
        "--seconds",
        type=whole(1, DAY),
        default=SECONDS,
        metavar="N",
        help="duration of --listen (%(default)s)",
    )
