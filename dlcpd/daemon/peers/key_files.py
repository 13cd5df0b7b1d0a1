"""Files of keys: a host's identity, which is secret, and the public keys that peers know it by.

Both are TOML: `host` and `secret`, or `host` and `keys`. Keys are Z85, which needs no escapes.
"""

import os
import pwd
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dlcpd.contract.errors import BadConfig
from dlcpd.contract.toml_text import loaded
from dlcpd.daemon.peers.keys import KEY_BYTES, KeyPair, key_bytes, key_text
from dlcpd.ipc.held_folder import check_file, holding, read_trusted
from dlcpd.ipc.safe_path import UnsafePath

MAX_FILE: Final = 4096  # bytes; MAX_KEYS keys, a name of 255 characters, and comments
MAX_KEYS: Final = 8  # of a host: one, or two while it changes; more is tolerance
OF_OWNER: Final = 0o600
SERVICE_USER: Final = "dlcpd"  # of the units and the package (deploy/systemd/sysusers.d)
OF_ALL: Final = 0o644
_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # it is a file's name as well


@dataclass(frozen=True, slots=True)
class PublicKeys:
    """The public keys of a host, newest first."""

    host: str
    keys: tuple[str, ...]

    def text(self) -> str:
        """The text of its file."""
        keys = ",\n".join(f'    "{key}"' for key in self.keys)
        return (
            f"# Public keys of a host's dlcpd: for `dlcpctl keys authorise` on its peers.\n"
            f'host = "{self.host}"\nkeys = [\n{keys},\n]\n'
        )


@dataclass(frozen=True, slots=True)
class Identity:
    """A host's name and key pair."""

    host: str
    pair: KeyPair

    @property
    def public(self) -> PublicKeys:
        """The public part, for peers."""
        return PublicKeys(self.host, (self.pair.text,))

    def text(self) -> str:
        """The text of its file, which is secret."""
        return (
            f"# The identity of a host's dlcpd. SECRET: who can read this can speak for the host.\n"
            f'host = "{self.host}"\nsecret = "{key_text(self.pair.secret)}"\n'
        )


def check_host(name: Any) -> str:
    """`name`, if it can be a host's name in a file of keys. Raises: ValueError."""
    if not isinstance(name, str) or not _HOST.fullmatch(name):
        raise ValueError(
            "host is a name of at most 64 letters, digits, dots, hyphens and underscores"
        )
    return name


def parse_public_untrusted(text: str, source: str) -> PublicKeys:
    """Raises: BadConfig naming `source`."""
    try:
        values = _fields(text, {"host", "keys"})
        keys = values["keys"]
        if not isinstance(keys, list) or not 1 <= len(keys) <= MAX_KEYS:
            raise ValueError(f"keys is a list of 1 to {MAX_KEYS} keys")
        return PublicKeys(check_host(values["host"]), tuple(_key(key) for key in keys))
    except ValueError as exc:
        raise BadConfig(f"{source}: {exc}; make such a file with `dlcpctl keys show`") from None


def parse_identity_untrusted(text: str, source: str) -> Identity:
    """Raises: BadConfig, which names `source` and never quotes it: the content is secret."""
    try:
        values = _fields(text, {"host", "secret"})
        secret = key_bytes(_key(values["secret"]))
        return Identity(check_host(values["host"]), KeyPair.of_secret(secret))
    except ValueError as exc:
        raise BadConfig(f"{source}: {exc}; make such a file with `dlcpctl keys new`") from None


def read_identity(file: Path, *, of_anyone: bool = False) -> Identity:
    """`of_anyone`: any user may own the file and its folders. For root, which inspects the daemon
    of another user.

    Raises: BadConfig if it cannot be read or is no identity, or if other users can read or replace
    it.
    """
    read = _of_anyone if of_anyone else read_trusted
    return parse_identity_untrusted(_read(file, 0o077, read), str(file))


def read_public(file: Path) -> PublicKeys:
    """Raises: BadConfig if it cannot be read or is no such file, if all users may write it, or if
    another user can replace it."""
    return parse_public_untrusted(_read(file, 0o002, read_trusted), str(file))


def service_user() -> pwd.struct_passwd | None:
    """The user of this host's service; None where there is none."""
    try:
        return pwd.getpwnam(SERVICE_USER)
    except KeyError:
        return None


def write(file: Path, text: str, mode: int, *, replace: bool, make: int | None = None) -> None:
    """Write a whole file, or none. `make`: the mode of folders that are missing.

    Raises: OSError, UnsafePath where another user could exchange the file; FileExistsError unless
    `replace`.
    """
    with (
        holding(file, make=make) as (folder, name),
        folder.replacing(name, exclusive=not replace) as made,
    ):
        made.write(text.encode("ascii"))
        os.fchmod(made.fileno(), mode)  # whatever the umask: it was 0600 until now
        made.flush()
        os.fsync(made.fileno())


def remove(file: Path) -> None:
    """Raises: OSError, UnsafePath where another user could exchange the file."""
    with holding(file) as (folder, name):
        folder.remove(name)


def _of_anyone(file: Path, most: int, *, forbidden: int) -> bytes:
    """As read_trusted, but any user may own the file and the folders above. Raises: OSError."""
    # O_NONBLOCK: a pipe would block. The checks apply to the opened file.
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as opened:
        check_file(os.fstat(descriptor), file, None, forbidden)
        return opened.read(most)


def _read(file: Path, forbidden: int, read: Callable[..., bytes]) -> str:
    """Raises: BadConfig."""
    try:
        data = read(file, MAX_FILE + 1, forbidden=forbidden)
    except UnsafePath as exc:
        raise BadConfig(str(exc.strerror)) from exc
    except OSError as exc:
        raise BadConfig(f"{file}: user id {os.geteuid()} cannot read it: {exc.strerror}") from exc
    if len(data) > MAX_FILE:
        raise BadConfig(f"{file}: is longer than {MAX_FILE} B, the most of a file of keys")
    return data.decode("ascii", "replace")


def _fields(text: str, names: set[str]) -> dict[str, Any]:
    """Raises: ValueError."""
    try:
        values = loaded(text)
    except BadConfig:  # its message quotes the text
        raise ValueError("is no TOML") from None
    if values.keys() != names:
        raise ValueError(f"has exactly {' and '.join(sorted(names))}")
    return values


def _key(text: Any) -> str:
    """Raises: ValueError."""
    if not isinstance(text, str) or len(key_bytes(text)) != KEY_BYTES:
        raise ValueError("a key is 40 characters of Z85")
    return text
