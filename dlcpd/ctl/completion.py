"""`dlcpctl completion`: a script with which a shell completes arguments of `dlcpctl`."""

import argparse
import sys
from pathlib import Path
from typing import Any

from dlcpd.cli.grammar import complete
from dlcpd.cli.output import Output
from dlcpd.ipc.standard_output import write


def completion(top: argparse.ArgumentParser, options: argparse.Namespace, output: Output) -> int:
    """Print the script to stdout, unescaped: a shell reads it."""
    import shtab  # noqa: PLC0415  # an extra

    complete(top)
    complete_files(top, shtab.FILE)
    script = shtab.complete(top, options.shell)
    write(script + "\n", sys.stdout)
    output.document({"shell": options.shell, "script": script})
    return 0


def complete_files(parser: argparse.ArgumentParser, how: Any) -> None:
    """Complete file names for arguments that are paths, in all commands below `parser`."""
    for action in parser._actions:  # noqa: SLF001  # argparse has no public way to its arguments
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  # likewise
            for below in action.choices.values():
                complete_files(below, how)
        elif action.type is Path or action.dest in ("json", "socket"):
            action.complete = how  # type: ignore[attr-defined]  # where shtab looks
