"""The option --version of all commands."""

import argparse
import sys
from typing import Any

from dlcpd.contract.errors import BadConfig
from dlcpd.ipc.standard_output import write


class ShowVersions(argparse.Action):
    """Prints the versions, and ends the program."""

    def __init__(self, option_strings: list[str], dest: str, **_: Any) -> None:
        super().__init__(
            option_strings,
            dest,
            nargs=0,
            default=argparse.SUPPRESS,
            help="show the versions of the program, its messages and its protocol, and exit",
        )

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        """Raises: SystemExit."""
        from dlcpd.daemon.versions import text  # noqa: PLC0415  # most commands do without

        try:
            write(f"{text(parser.prog)}\n", sys.stdout)
        except BadConfig as exc:
            parser.error(str(exc))
        parser.exit()
