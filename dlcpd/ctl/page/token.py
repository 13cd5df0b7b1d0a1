"""What a browser has to know beyond loopback: the page's token."""

import hmac
import os
import secrets
import stat
from pathlib import Path
from typing import Final

from dlcpd.contract.errors import BadConfig

BYTES: Final = 16  # random ones of a token that is drawn here: nobody guesses 128 bits
MIN_LENGTH: Final = 32  # characters of one in a file; so many hexadecimal digits have 128 bits
MAX_LENGTH: Final = 1024
_SCHEME: Final = "Bearer "


def drawn() -> str:
    """A new one."""
    return secrets.token_hex(BYTES)


def from_file(file: Path) -> str:
    """The one in a file. Raises: BadConfig where others may read it, or it can be guessed."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would wait
        with os.fdopen(descriptor, "rb") as opened:
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
            found = opened.read(MAX_LENGTH + 1).strip()
    except OSError as exc:
        raise BadConfig(
            f"--token-file {file}: cannot be read ({exc.strerror}); make one with "
            f"(umask 077; openssl rand -hex 32 > {file})"
        ) from exc
    if mode & 0o077:
        raise BadConfig(
            f"--token-file {file}: has mode {mode:04o}; others may open it: chmod 600 it"
        )
    text = found.decode("ascii", "replace")
    if not MIN_LENGTH <= len(text) <= MAX_LENGTH or not (text.isalnum() and text.isascii()):
        raise BadConfig(
            f"--token-file {file}: a token is random, and has {MIN_LENGTH} to {MAX_LENGTH} letters "
            f"and digits: openssl rand -hex 32"
        )
    return text


def told(token: str, authorization: str | None) -> bool:
    """Whether a request's Authorization says it. Takes as long for every wrong one."""
    given = (authorization or "").removeprefix(_SCHEME)
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), token.encode())
