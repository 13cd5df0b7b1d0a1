"""`dlcpctl keys`: this host's key pair, and the hosts that are authorised as its peers.

Works on the files of one folder, and needs no daemon: a running one applies changes of the
authorised hosts within seconds.
"""

import argparse
import difflib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dlcpd.cli import table
from dlcpd.cli.output import Output
from dlcpd.contract.errors import BadConfig
from dlcpd.daemon.config.tables import AUTHORISED, IDENTITY, KEYS
from dlcpd.daemon.peers.authorised import SUFFIX
from dlcpd.daemon.peers.key_files import (
    MAX_KEYS,
    OF_ALL,
    OF_OWNER,
    Identity,
    PublicKeys,
    check_host,
    parse_public_untrusted,
    read_identity,
    read_public,
    remove,
    service_user,
    write,
)
from dlcpd.daemon.peers.keys import KeyPair, key_bytes
from dlcpd.ipc.held_folder import holding

FOLDER: Final = 0o755  # mode of folders that are made: the daemon of another user reads them
SOON: Final = "running daemons with this folder use it within seconds, others when they start"


def new(options: argparse.Namespace, output: Output) -> int:
    """Make an identity. Raises: BadConfig if there is one already."""
    file = _identity_file(options)
    try:
        made = Identity(check_host(options.host or socket.gethostname()), KeyPair.new())
    except ValueError as exc:
        raise BadConfig(f"--host: {exc}") from None
    with _may_write(file.parent):
        try:
            write(file, made.text(), OF_OWNER, replace=False, make=FOLDER)
        except FileExistsError:
            raise BadConfig(
                f"{file}: there is an identity already, which peers may have authorised; to "
                "replace it, make another with --identity FILE (docs/security.md, Rotation)"
            ) from None
        whose = _hand_over(file)
    output.line(
        f"{file}: the identity of {made.host}, key {made.pair.text}; the file is secret{whose}"
    )
    output.line(
        f"next: `dlcpctl keys show > {made.host}.pub`, and with that file on every host `dlcpctl "
        f"keys authorise {made.host}.pub`; a daemon has its identity from its next start on"
    )
    output.document(_values(made.public, file))
    return 0


def _hand_over(file: Path) -> str:
    """If root makes the identity of this host's service, give the file to the service's user.
    Returns a remark for the output, or "". Raises: OSError."""
    if os.geteuid() or file.parent != KEYS:
        return ""
    user = service_user()
    if user is None:
        return ""
    with holding(file) as (folder, name):
        os.chown(name, user.pw_uid, user.pw_gid, dir_fd=folder.descriptor, follow_symlinks=False)
    return f", and of user {user.pw_name}, whose daemon reads it"


def show(options: argparse.Namespace, output: Output) -> int:
    """Print the public key, which other hosts authorise."""
    file = _identity_file(options)
    if not file.exists():
        raise BadConfig(f"{file}: this host has no identity; `dlcpctl keys new` makes one")
    public = _identity(file).public
    output.line(public.text().rstrip())
    output.document(_values(public, file))
    return 0


def authorise(options: argparse.Namespace, output: Output) -> int:
    """Authorise the hosts of some files as peers."""
    folder = options.keys / AUTHORISED
    # All are read before one is written.
    given = [parse_public_untrusted(_text(file), str(file)) for file in options.files]
    known = {public.host: public for _, public in _authorised(folder)}
    owner = {key: public.host for public in known.values() for key in public.keys}
    for public in given:
        for key in public.keys:
            if owner.setdefault(key, public.host) != public.host:
                raise BadConfig(f"{public.host}: {owner[key]} has the key {key} already")
    with _may_write(folder):
        for public in given:
            before = known.get(public.host, PublicKeys(public.host, ()))
            after = public if options.replace else _joined(public, before)
            _write_public(folder, after)
            known[public.host] = after
            output.line(f"{after.host}: {_keys(after)} authorised")
    output.line(SOON)
    output.document([_values(known[public.host], folder) for public in given])
    return 0


def revoke(options: argparse.Namespace, output: Output) -> int:
    """Revoke a host, or one of its keys."""
    folder = options.keys / AUTHORISED
    known = _authorised(folder)
    if not any(public.host == options.host for _, public in known):
        near = difflib.get_close_matches(options.host, [public.host for _, public in known], n=1)
        hint = (
            f"; did you mean {near[0]}?"
            if near
            else "; `dlcpctl keys list` lists the authorised hosts"
        )
        raise BadConfig(f"{options.host}: {folder} does not authorise this host{hint}")
    with _may_write(folder):
        left = [
            key
            for each in known
            if each[1].host == options.host
            for key in _without(each[0], each[1], options.key or "")
        ]
    output.line(f"{options.host}: {len(left)} keys left" if left else f"{options.host}: revoked")
    output.line(SOON)
    output.document({"host": options.host, "keys": left})
    return 0


def list_hosts(options: argparse.Namespace, output: Output) -> int:
    """Print the authorised hosts and their keys."""
    folder, file = options.keys / AUTHORISED, _identity_file(options)
    own = _identity(file).pair.text if file.exists() and os.access(file, os.R_OK) else ""
    known = _authorised(folder)
    rows = [
        [public.host, key, path.name, "this host" if key == own else None]
        for path, public in known
        for key in public.keys
    ]
    if rows:
        output.line(table.render(("host", "key", "file", "is"), rows, left=4))
    elif folder.is_dir():
        output.line(f"{folder} names no host: a daemon with it has no peers on other hosts")
    else:
        output.line(
            f"there is no {folder}: a daemon without it accepts any key that a job names. "
            "`dlcpctl keys authorise FILE...` makes it"
        )
    output.document([_values(public, path) for path, public in known])
    return 0


def _identity_file(options: argparse.Namespace) -> Path:
    chosen: Path | None = options.identity
    return chosen or options.keys / IDENTITY


def _identity(file: Path) -> Identity:
    """Raises: BadConfig."""
    return read_identity(file, of_anyone=os.geteuid() == 0)


def _authorised(folder: Path) -> list[tuple[Path, PublicKeys]]:
    """Raises: BadConfig for the first malformed file."""
    files = sorted(folder.glob(f"[!.]*{SUFFIX}")) if folder.is_dir() else []
    return [(file, read_public(file)) for file in files]


def _joined(public: PublicKeys, before: PublicKeys) -> PublicKeys:
    """Raises: BadConfig for more keys than a host may have."""
    keys = tuple(dict.fromkeys((*public.keys, *before.keys)))
    if len(keys) > MAX_KEYS:
        raise BadConfig(
            f"{public.host}: would have {len(keys)} keys, at most {MAX_KEYS}; revoke old ones, "
            "or replace them with --replace"
        )
    return PublicKeys(public.host, keys)


def _without(file: Path, public: PublicKeys, key: str) -> tuple[str, ...]:
    """Remove `key` from a file, or the file; returns the keys left. Raises: BadConfig, OSError."""
    keys = tuple(each for each in public.keys if key and each != key)
    if keys == public.keys:
        raise BadConfig(f"{public.host}: has no key {key}; it has {', '.join(public.keys)}")
    if keys:
        write(file, PublicKeys(public.host, keys).text(), OF_ALL, replace=True)
    else:
        remove(file)
    return keys


def _write_public(folder: Path, public: PublicKeys) -> None:
    """Write the host's file, and remove its other files. Raises: OSError, BadConfig."""
    file = folder / f"{public.host}{SUFFIX}"
    write(file, public.text(), OF_ALL, replace=True, make=FOLDER)
    for other, known in _authorised(folder):
        if known.host == public.host and other != file:
            remove(other)


def _text(file: Path) -> str:
    """Raises: BadConfig."""
    try:
        return file.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "is not ASCII text"
        raise BadConfig(f"{file}: cannot be read: {why}") from exc


@contextmanager
def _may_write(folder: Path) -> Iterator[None]:
    """Turn an OSError within into BadConfig."""
    try:
        yield
    except OSError as exc:
        raise BadConfig(
            f"{folder}: user id {os.geteuid()} cannot write there: {exc.strerror}; run this as "
            f"root, or give another folder with --keys"
        ) from exc


def _keys(public: PublicKeys) -> str:
    return f"{len(public.keys)} key{'s' if len(public.keys) > 1 else ''}"


def _values(public: PublicKeys, where: Path) -> dict[str, object]:
    return {"host": public.host, "keys": list(public.keys), "where": str(where)}


def check_key(text: str) -> str:
    """An argparse type: a public key. Raises: ArgumentTypeError."""
    try:
        key_bytes(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(f"{text!r}: {exc}") from None
    return text
