"""Commands of `dlcpctl` that other packages provide as entry points.

An entry point of the group `dlcpctl.commands` names a function that gets the result of
`add_subparsers` and adds its command with `dlcpd.ctl.grammar.command`.
"""

import argparse
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Final, NoReturn

from dlcpd.contract.errors import BadConfig
from dlcpd.ctl.grammar import Commands, command

GROUP: Final = "dlcpctl.commands"


def installed() -> list[EntryPoint]:
    """The entry points of this environment, by name."""
    return sorted(entry_points(group=GROUP), key=lambda entry: entry.name)


def extend(commands: Commands, entries: Iterable[EntryPoint]) -> None:
    """Add their commands. A command that cannot be loaded fails only when it is called."""
    for entry in entries:
        try:
            add = entry.load()
        except Exception as exc:  # `status` must work even if another package is broken
            _add_broken(commands, entry, f"{type(exc).__name__}: {exc}")
        else:
            add(commands)


def _add_broken(commands: Commands, entry: EntryPoint, why: str) -> None:
    def run(*_: object) -> NoReturn:
        raise BadConfig(
            f"{entry.name}: {entry.value} cannot be loaded ({why}); install its package again"
        )

    made = command(commands, entry.name, run, "Cannot be loaded; call it to see why.")
    made.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
