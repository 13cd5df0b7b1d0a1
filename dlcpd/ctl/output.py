"""Where output goes: tables to stdout, progress to stderr, JSON to a file or stdout."""

import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

from dlcpd.contract.errors import BadConfig
from dlcpd.contract.printable import lines

STDOUT = "-"  # as --json's value: JSON alone on stdout, and what people read on stderr


class Output:
    """One command's way to talk.

    Raises: BadConfig when the JSON file cannot be written, before anything is measured.
    """

    def __init__(self, json_to: str | None) -> None:
        if json_to is not None and json_to != STDOUT:
            _check_writable(Path(json_to))
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
        if self._json_to == STDOUT:
            sys.stdout.write(text)
            return
        try:
            with open(self._json_to, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError as exc:
            raise BadConfig(f"--json {self._json_to}: cannot be written: {exc.strerror}") from exc


def _check_writable(path: Path) -> None:
    """Look, and leave what is there as it is: a run may still fail, or be interrupted.

    Raises: BadConfig.
    """
    if path.is_dir():
        raise BadConfig(f"--json {path}: is a folder; name a file")
    if not path.parent.is_dir():
        raise BadConfig(f"--json {path}: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise BadConfig(f"--json {path}: user id {os.getuid()} may not write there")
