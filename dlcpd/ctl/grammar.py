"""What the commands of `dlcpctl` are made of, whichever package they come from."""

import argparse
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dlcpd.contract.errors import BadConfig

Commands = Any  # argparse has no public name for what add_subparsers returns


@dataclass(frozen=True, slots=True)
class Need:
    """Something that a command imports and that `pip install dlcpd` alone does not bring."""

    module: str  # as it is imported
    project: str  # as it is installed
    extra: str  # of dlcpd, that installs it


def command(
    commands: Commands,
    name: str,
    run: Callable[..., int],
    text: str,
    *,
    needs: Sequence[Need] = (),
) -> argparse.ArgumentParser:
    """Add a command. `run(options, output)` gives the exit code, once all it `needs` is there."""
    made: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text, allow_abbrev=False
    )
    made.add_argument("--json", metavar="FILE", help='also write JSON; "-" = to stdout')
    made.set_defaults(run=run, needs=tuple(needs), full_name=made.prog.removeprefix("dlcpctl "))
    return made


def check_needs(full_name: str, needs: Sequence[Need]) -> None:
    """Look for what a command needs, without importing it.

    Raises: BadConfig with the pip command that installs what is missing.
    """
    missing = [need for need in needs if importlib.util.find_spec(need.module) is None]
    if missing:
        projects = " and ".join(need.project for need in missing)
        extras = ",".join(dict.fromkeys(need.extra for need in missing))
        raise BadConfig(
            f"{full_name} needs {projects}, which {sys.executable} does not have: "
            f"pip install 'dlcpd[{extras}]'"
        )


def whole(low: int, high: int) -> "type[int]":
    """An argparse type: an integer within low..high."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number {low}..{high}")
        return value

    return parse  # type: ignore[return-value]  # argparse calls it, and wants nothing more
