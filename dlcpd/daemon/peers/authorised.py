"""The authorised keys and their hosts: a directory with a file of public keys per host.

It is read again when it changes. A malformed file keeps its last valid content: a typing error ends
no job, and the other files take effect.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dlcpd.contract.errors import BadConfig
from dlcpd.daemon.peers.key_files import PublicKeys, read_public
from dlcpd.ipc.held_folder import HeldFolder

SUFFIX: Final = ".toml"  # other files, and hidden ones, are temporary ones of editors or writers
MAX_FILES: Final = 8192  # hosts, as many as there can be lines to peers; 16 MB of keys at most

Stamp = tuple[int, int, int]  # of a file: inode, time of change in ns, bytes


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of a new reading."""

    added: frozenset[str]  # keys
    revoked: frozenset[str]
    problems: tuple[str, ...]  # malformed files, and why


class Authorised:
    """Without a `folder` every key is allowed: the job's store names the peers' keys."""

    def __init__(self, folder: Path | None, own: str) -> None:
        """`own` is this daemon's key: ranks of one daemon are peers too.

        Raises: BadConfig for anything in `folder` that is wrong.
        """
        self.folder, self._own = folder, own
        self._files: dict[str, tuple[Stamp, PublicKeys]] = {}
        self._hosts: dict[str, str] = {}  # by key
        self.problems: tuple[str, ...] = ()
        if problems := self.read().problems:
            raise BadConfig("; ".join(problems[:3]))

    @property
    def hosts(self) -> int:
        """Number of authorised hosts."""
        return len(set(self._hosts.values()))

    def allows(self, key: str) -> bool:
        """Whether messages from and to the holder of `key` are allowed."""
        return self.folder is None or key in self._hosts or key == self._own

    def host_of(self, key: str) -> str:
        """The host of `key`; "" if no file names it."""
        return self._hosts.get(key, "")

    def read(self) -> Reading:
        """Read the files that changed since the last reading."""
        if self.folder is None:
            return Reading(frozenset(), frozenset(), ())
        before = self._hosts
        try:
            self._files, self._hosts, self.problems = self._understood(_stamps(self.folder))
        except (OSError, BadConfig) as exc:
            text = exc.strerror if isinstance(exc, OSError) else exc
            self.problems = (f"[security] authorised {self.folder}: {text}",)
        added, gone = self._hosts.keys() - before.keys(), before.keys() - self._hosts.keys()
        return Reading(frozenset(added), frozenset(gone) - {self._own}, self.problems)

    def _understood(
        self, stamps: dict[str, Stamp]
    ) -> tuple[dict[str, tuple[Stamp, PublicKeys]], dict[str, str], tuple[str, ...]]:
        """Files, hosts by key, and problems."""
        assert self.folder is not None  # noqa: S101  # checked by `read`
        files, hosts, problems = {}, dict[str, str](), list[str]()
        for name, stamp in sorted(stamps.items()):
            known = self._files.get(name)
            if known is None or known[0] != stamp:
                try:
                    known = stamp, read_public(self.folder / name)
                except BadConfig as exc:
                    problems.append(f"[security] authorised {exc}")
            if known is None:
                continue
            files[name] = known
            for key in known[1].keys:
                if hosts.setdefault(key, known[1].host) != known[1].host:
                    problems.append(
                        f"[security] authorised {self.folder / name}: {hosts[key]} has the key "
                        f"{key} too; a key belongs to one host"
                    )
        return files, hosts, tuple(problems)


def _stamps(folder: Path) -> dict[str, Stamp]:
    """Stamps of the files in `folder`. Raises: OSError, BadConfig."""
    found: dict[str, Stamp] = {}
    with HeldFolder.open(folder) as held:
        for name in held.names():
            if not name.endswith(SUFFIX) or name.startswith("."):
                continue
            try:
                stat = os.stat(name, dir_fd=held.descriptor)  # follows links
            except FileNotFoundError:  # removed just now, or a link to nothing
                continue
            found[name] = stat.st_ino, stat.st_ctime_ns, stat.st_size
            if len(found) > MAX_FILES:
                raise BadConfig(f"holds more than {MAX_FILES} files")
    return found
