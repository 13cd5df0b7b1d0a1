"""Writes to stdout and stderr, which may be a full disk."""

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
