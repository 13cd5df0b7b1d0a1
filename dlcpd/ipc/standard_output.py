"""Writes to stdout and stderr, which may be a full disk, or closed."""

import os
import sys
from contextlib import suppress
from typing import TextIO

from dlcpd.contract.errors import BadConfig


def write(text: str, stream: TextIO) -> None:
    """Write to stdout or stderr at once. Raises: BadConfig, as for a full disk behind the stream;
    BrokenPipeError, where its reader has ended."""
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as exc:
        with suppress(OSError):  # at its end, the interpreter would write the rest, and complain
            stream.close()
        raise BadConfig(f"the output cannot be written: {exc.strerror}") from exc


def open_missing() -> None:
    """Open /dev/null for stdin, stdout and stderr that the process was started without (`>&-`).

    Else Python has None in their place, and the first socket gets their descriptor: what a library
    or a child process prints would be sent to a peer.
    """
    for descriptor in range(3):  # ascending: open takes the lowest number that is free
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
