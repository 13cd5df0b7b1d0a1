"""Where output goes: tables to stdout, progress to stderr, JSON to a file or stdout."""

import json
import sys
from pathlib import Path
from typing import Any, TextIO

from dlcpd.cli import colour
from dlcpd.cli.colour import Style
from dlcpd.cli.output_file import OutputFile
from dlcpd.contract.printable import lines
from dlcpd.ipc.standard_output import write

STDOUT = "-"  # as --json's value: only JSON on stdout, text for people on stderr


class Output:
    """The output of one command.

    Raises: BadConfig when the JSON file cannot be written, before anything is measured.
    """

    def __init__(self, json_to: str | None) -> None:
        self._file = None
        if json_to is not None and json_to != STDOUT:
            self._file = OutputFile("--json", Path(json_to))
            self._file.check()
        self._json_to = json_to
        self._text: TextIO = sys.stderr if json_to == STDOUT else sys.stdout

    def line(self, text: str = "", style: Style | None = None) -> None:
        """A line for people, or several; all but printable ASCII is escaped. `style` adds colours
        to each, in a terminal. Raises: as `write`."""
        shown = lines(text)
        if style and colour.wanted(self._text):
            shown = "\n".join(map(style, shown.split("\n")))
        write(f"{shown}\n", self._text)

    def progress(self, text: str) -> None:
        """A line about the progress of long work, to stderr."""
        print(f"# {lines(text)}", file=sys.stderr, flush=True)

    def document(self, value: Any) -> None:
        """The result for programs, if --json was given.

        Raises: BadConfig.
        """
        if self._json_to is None:
            return
        text = json.dumps(value, indent=1, allow_nan=False) + "\n"
        if self._file is None:
            write(text, sys.stdout)
            return
        self._file.write(text)
