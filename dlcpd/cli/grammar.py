"""Building blocks for the commands of `dlcpctl`, in all packages."""

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dlcpd.contract.command_line import Parser
from dlcpd.contract.errors import BadConfig

Commands = Any  # argparse has no public name for what add_subparsers returns


@dataclass(frozen=True, slots=True)
class Need:
    """A module that a command imports and that `pip install dlcpd` alone does not install."""

    module: str  # as it is imported
    project: str  # as it is installed
    extra: str  # of dlcpd, which installs it


@dataclass(frozen=True, slots=True)
class OnDemand:
    """A function whose module is imported at its first call: a command imports only its own."""

    module: str
    name: str

    def __call__(self, *arguments: Any) -> Any:
        """Import the function, and call it."""
        return getattr(importlib.import_module(self.module), self.name)(*arguments)


class LateParser(Parser):
    """A command whose arguments are added at its first use, since their modules take long to
    import. `fill` adds them; None: they were added."""

    fill: Callable[[argparse.ArgumentParser], None] | None = None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As in argparse; an unknown command gets the names that are near to it, not all."""
        if not isinstance(action, argparse._SubParsersAction) or value in action.choices:  # noqa: SLF001  # as below
            super()._check_value(action, value)
            return
        import difflib  # noqa: PLC0415  # only after a mistake: probes import little

        near = difflib.get_close_matches(str(value), action.choices, 3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"{self.prog} --help lists them"
        raise argparse.ArgumentError(None, f"{self.prog} has no command {value!r}; {hint}")

    def complete(self) -> None:
        """Add the arguments."""
        fill, self.fill = self.fill, None
        if fill is not None:
            fill(self)

    def parse_known_args(self, *arguments: Any, **options: Any) -> Any:
        """As in argparse, with the arguments added."""
        self.complete()
        return super().parse_known_args(*arguments, **options)


class GroupedHelp(argparse.HelpFormatter):
    """Help that lists commands below the headings of `groups`: heading, names."""

    groups: Sequence[tuple[str, Sequence[str]]] = ()

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  # as above
            return super()._format_action(action)
        known = {below.dest: below for below in action._get_subactions()}  # noqa: SLF001  # as above
        grouped = {name for _, names in self.groups for name in names}
        others = ("of other packages", [name for name in known if name not in grouped])
        lines = list[str]()
        self._indent()
        for heading, names in (*self.groups, others):
            found = [self._format_action(known[name]) for name in names if name in known]
            lines += ["", f"  {heading}:", *(text.rstrip("\n") for text in found)] if found else []
        self._dedent()
        return "\n".join(lines) + "\n"


def complete(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of all commands below `parser`: for manual pages and completion."""
    if isinstance(parser, LateParser):
        parser.complete()
    for action in parser._actions:  # noqa: SLF001  # argparse has no public way to its arguments
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  # likewise
            for below in action.choices.values():
                complete(below)


def late(commands: Commands, name: str, text: str, module: str) -> None:
    """Add a command, or a group of them, that `module.fill(parser)` completes at its first use."""
    made: LateParser = commands.add_parser(name, help=text, description=text)
    made.fill = OnDemand(module, "fill")


def prepare(
    made: argparse.ArgumentParser, run: Callable[..., int], *, needs: Sequence[Need] = ()
) -> None:
    """Make a parser a command's. `run(options, output)` returns the exit code; it is called only if
    all modules in `needs` are installed."""
    made.add_argument("--json", metavar="FILE", help='also write JSON; "-" = to stdout')
    made.set_defaults(run=run, needs=tuple(needs), full_name=made.prog.removeprefix("dlcpctl "))


def command(
    commands: Commands,
    name: str,
    run: Callable[..., int],
    text: str,
    *,
    needs: Sequence[Need] = (),
) -> argparse.ArgumentParser:
    """Add a command to a group; see `prepare`."""
    made: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    prepare(made, run, needs=needs)
    return made


def check_needs(full_name: str, needs: Sequence[Need]) -> None:
    """Check that the modules a command needs are installed, without importing them.

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
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {low}..{high}")
        return value

    return parse  # type: ignore[return-value]  # argparse only calls it
