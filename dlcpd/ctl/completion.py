"""`dlcpctl completion`: a script with which a shell completes what is typed after `dlcpctl`."""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any, Final

from dlcpd.ctl.grammar import Commands, Need, command
from dlcpd.ctl.output import Output

SHELLS: Final = ("bash", "zsh", "tcsh")
NEEDS: Final = (Need("shtab", "shtab", "completion"),)


def add(commands: Commands, top: argparse.ArgumentParser) -> None:
    """The command and its argument. `top` is the grammar that is completed, whole by then."""
    text = "Print a script for a shell, so that it completes commands, options and files."
    made = command(commands, "completion", partial(completion, top), text, needs=NEEDS)
    made.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"({', '.join(SHELLS)})")


def completion(top: argparse.ArgumentParser, options: argparse.Namespace, output: Output) -> int:
    """To stdout, as it is: a shell reads it."""
    import shtab  # noqa: PLC0415  # an extra

    complete_files(top, shtab.FILE)
    script = shtab.complete(top, options.shell)
    sys.stdout.write(script + "\n")
    output.document({"shell": options.shell, "script": script})
    return 0


def complete_files(parser: argparse.ArgumentParser, how: Any) -> None:
    """Where a path is wanted, files are offered; in all commands below."""
    for action in parser._actions:  # noqa: SLF001  # argparse has no public way to its arguments
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for below in action.choices.values():
                complete_files(below, how)
        elif action.type is Path or action.dest in ("json", "socket"):
            action.complete = how  # type: ignore[attr-defined]  # where shtab looks
