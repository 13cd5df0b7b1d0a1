"""Where output goes: tables to stdout, progress to stderr, JSON to a file or stdout."""

import json
import sys
from pathlib import Path
from typing import Any, TextIO

from dlcpd.contract.printable import lines
from dlcpd.ctl.output_file import OutputFile

STDOUT = "-"  # as --json's value: JSON alone on stdout, and what people read on stderr


class Output:
    """One command's way to talk.

    Raises: BadConfig when the JSON file cannot be written, before anything is measured.
    """

    def __init__(self, json_to: str | None) -> None:
        self._file = None
        if json_to is not None and json_to != STDOUT:
            self._file = OutputFile("--json", Path(json_to))
            self._file.check()
        self._json_to = json_to
        self._text: TextIO = sys.stderr if json_to == STDOUT else sys.stdout

    def line(self, text: str = "") -> None:
        """A line for people, or several; what is no printable ASCII is escaped."""
        print(lines(text), file=self._text, flush=True)

    def progress(self, text: str) -> None:
        """A line about work that takes long."""
        print(f"# {lines(text)}", file=sys.stderr, flush=True)

    def document(self, value: Any) -> None:
        """The result for programs, if it was asked for.

        Raises: BadConfig.
        """
        if self._json_to is None:
            return
        text = json.dumps(value, indent=1, allow_nan=False) + "\n"
        if self._file is None:
            sys.stdout.write(text)
            return
        self._file.write(text)
