"""Bounded reads of files and of the service manager's commands, for `dlcpctl bugreport`."""

import os
import stat
import subprocess
from pathlib import Path
from threading import Timer
from typing import Final

from dlcpd.contract.errors import DlcpError

MOST_TEXT: Final = 4 << 20  # bytes of a log: some 20,000 lines
MOST_KEY: Final = 64 << 10  # bytes of a file of keys
MOST_ERROR: Final = 500  # characters of a command's complaint
SECONDS: Final = 20.0  # that a command may take
ENTRIES: Final = 20_000  # of the journal


class CannotRead(DlcpError):
    """A command is not there, fails or says nothing."""

    code = "cannot_read"


def last_bytes(file: Path) -> str:
    """The end of a regular file, at most MOST_TEXT bytes; links are not followed.

    Raises: OSError.
    """
    return _part(file, MOST_TEXT, end=True)


def first_bytes(file: Path) -> str:
    """The start of a regular file, at most MOST_KEY bytes. Raises: OSError."""
    return _part(file, MOST_KEY, end=False)


def _part(file: Path, most: int, *, end: bool) -> str:
    link = os.O_NOFOLLOW if end else 0  # the key is not put into the archive, the log is
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | link)
    with os.fdopen(descriptor, "rb") as source:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{file}: is not a regular file")
        if end:
            source.seek(max(0, status.st_size - most))
        return source.read(most).decode(errors="replace")


def lines_of_journal(unit: str) -> str:
    """The newest lines of a unit, the oldest first, at most MOST_TEXT bytes. Raises: CannotRead."""
    options = ["--reverse", "--no-pager", "--quiet", "--output=short-iso-precise"]
    newest_first = said_by("journalctl", f"--unit={unit}", f"--lines={ENTRIES}", *options)
    return "\n".join(reversed(newest_first.splitlines())) + "\n"


def said_by(*command: str) -> str:
    """Output of a command, at most MOST_TEXT bytes, within SECONDS. Raises: CannotRead."""
    environment = {"PATH": os.defpath, "LC_ALL": "C"}
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
    except OSError as exc:
        raise CannotRead(f"{command[0]}: {exc.strerror}") from exc
    timer = Timer(SECONDS, process.kill)
    timer.start()
    try:
        with process:
            assert process.stdout is not None  # noqa: S101  # a pipe
            assert process.stderr is not None  # noqa: S101  # a pipe
            text = process.stdout.read(MOST_TEXT).decode(errors="replace")
            if len(text) >= MOST_TEXT:
                process.kill()
            complaint = process.stderr.read(MOST_ERROR).decode(errors="replace")
    finally:
        timer.cancel()
    if not text.strip():
        why = complaint.strip() or "nothing is there, or this user may not read it"
        raise CannotRead(f"{command[0]} says nothing: {why}")
    return text
