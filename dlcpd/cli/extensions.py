"""Commands of `dlcpctl` that other packages provide as entry points.

An entry point of the group `dlcpctl.commands` names a function that gets the result of
`add_subparsers` and adds its command with `dlcpd.cli.grammar.command`. Its module may also have a
function `section`, which makes the section of a report from the JSON of the command.
"""

import argparse
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, NoReturn

from dlcpd.cli.grammar import Commands, command
from dlcpd.contract.errors import BadConfig

GROUP: Final = "dlcpctl.commands"


def installed() -> list[EntryPoint]:
    """The entry points of this environment, by name."""
    return sorted(entry_points(group=GROUP), key=lambda entry: entry.name)


def reader(command: str) -> Callable[[Any], Any] | None:
    """The function that makes a section from the JSON of a command of another package, if there is
    one. `command`: as in the JSON, such as "bench step". Raises: BadConfig if it cannot be loaded.
    """
    name = command.partition(" ")[0]
    for entry in installed():
        if entry.name == name:
            try:
                return getattr(import_module(entry.module), "section", None)
            except Exception as exc:  # of another package: any error is possible
                raise BadConfig(f"{name}: {_refusal(entry, exc)}") from exc
    return None


def extend(commands: Commands, entries: Iterable[EntryPoint]) -> None:
    """Add their commands. A command that cannot be loaded fails only when it is called."""
    for entry in entries:
        try:
            add = entry.load()
        except Exception as exc:  # `status` must work even if another package is broken
            _add_broken(commands, entry, _refusal(entry, exc))
        else:
            add(commands)


def _add_broken(commands: Commands, entry: EntryPoint, why: str) -> None:
    def run(*_: object) -> NoReturn:
        raise BadConfig(f"{entry.name}: {why}")

    made = command(commands, entry.name, run, "Cannot be loaded; call it to see why.")
    made.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def _refusal(entry: EntryPoint, exc: Exception) -> str:
    why = f"{type(exc).__name__}: {exc}"
    return f"{entry.value} cannot be loaded ({why}); install its package again"
