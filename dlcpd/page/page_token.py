"""The page's token, which browsers need beyond loopback."""

import hmac
import secrets
from pathlib import Path
from typing import Final

from dlcpd.contract.errors import BadConfig
from dlcpd.ipc.held_folder import read_trusted
from dlcpd.ipc.safe_path import UnsafePath

BYTES: Final = 16  # random bytes of a new token: 128 bits cannot be guessed
MIN_LENGTH: Final = 32  # characters of a token in a file: 128 bits in hexadecimal digits
MAX_LENGTH: Final = 1024
_SCHEME: Final = "Bearer "


def drawn() -> str:
    """A new token."""
    return secrets.token_hex(BYTES)


def from_file(file: Path) -> str:
    """The token in a file. Raises: BadConfig if others may read it, or it is too short."""
    try:
        found = read_trusted(file, MAX_LENGTH + 1, forbidden=0o077).strip()
    except UnsafePath as exc:
        raise BadConfig(f"--token-file {file}: {exc.strerror}") from exc
    except OSError as exc:
        raise BadConfig(
            f"--token-file {file}: cannot be read ({exc.strerror}); make one with "
            f"(umask 077; openssl rand -hex 32 > {file})"
        ) from exc
    text = found.decode("ascii", "replace")
    if not MIN_LENGTH <= len(text) <= MAX_LENGTH or not (text.isalnum() and text.isascii()):
        raise BadConfig(
            f"--token-file {file}: a token is random, and has {MIN_LENGTH} to {MAX_LENGTH} letters "
            f"and digits: openssl rand -hex 32"
        )
    return text


def told(token: str, authorization: str | None) -> bool:
    """Whether a request's Authorization has the token. Compares in constant time."""
    given = (authorization or "").removeprefix(_SCHEME)
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), token.encode())
