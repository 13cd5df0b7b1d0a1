"""What can be typed after `dlcpctl`: the operating commands, and what other packages add."""

import argparse
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint
from typing import Final

from dlcpd import __version__
from dlcpd.ctl.extensions import extend
from dlcpd.ctl.grammar import Commands, command, whole
from dlcpd.ctl.status import peers, status
from dlcpd.daemon.config import DaemonTable

MAX_LEDGER: Final = 1000  # rows; what a daemon gives out at once


def parser(
    environ: Mapping[str, str], extensions: Iterable[EntryPoint] = ()
) -> argparse.ArgumentParser:
    """The whole grammar. `options.run(options, output)` is the command."""
    top = argparse.ArgumentParser(
        prog="dlcpctl",
        description="Inspect, measure and verify dlcpd.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"dlcpctl {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_inspection(commands, environ)
    extend(commands, extensions)
    return top


def _add_inspection(commands: Commands, environ: Mapping[str, str]) -> None:
    default = environ.get("DLCPD_SOCKET") or DaemonTable().socket
    for name, run, text in (
        ("status", status, "Show a daemon's sessions, paths and counters."),
        ("peers", peers, "Show the peers of a daemon's sessions, path by path."),
    ):
        made = command(commands, name, run, text)
        made.add_argument(
            "--socket", default=default, metavar="S", help="session socket (%(default)s)"
        )
        if name == "status":
            made.add_argument(
                "--ledger", type=whole(0, MAX_LEDGER), default=0, metavar="N",
                help="newest rows of the loss ledger to show",
            )  # fmt: skip
