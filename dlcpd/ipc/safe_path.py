"""Opens a folder whose path no other user can redirect.

The path is walked from the root, one open folder after the other, as by safe_path() of OpenSSH:
each folder belongs to this user or to root, and no other user may write to it. All users may write
to a folder with the sticky bit, such as /tmp: there they cannot remove or rename files of others.
A symbolic link in the path is followed if it belongs to this user or to root.
"""

import errno
import fcntl
import grp
import os
import pwd
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

MAX_LINKS: Final = 40  # as the kernel follows in one path
ROOT: Final = 0
_WRITABLE: Final = 0o022
_WAY: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_UID_MAP: Final = Path("/proc/self/uid_map")
_USERS: Final = Path("/proc/self/ns/user")
_OVERFLOW: Final = Path("/proc/sys/kernel/overflowuid")


class UnsafePath(PermissionError):
    """Another user could exchange the opened file. `strerror` names the folder and the remedy."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.EPERM, text)


def open_folder(
    path: str | Path, *, make: int | None = None, shared: bool = False
) -> tuple[int, Path]:
    """A descriptor of the folder at `path` and its path without links.

    `make`: mode to create missing folders with; None: none is created. `shared`: the folder
    itself may also be writable by all users, as /tmp is.

    Raises: UnsafePath, OSError.
    """
    trusted = trusted_owners()
    with _walk(path, trusted, make) as (descriptor, found):
        folder = os.open(".", _FOLDER, dir_fd=descriptor)
    try:
        check(os.fstat(folder), found, trusted, sticky=shared)
        return fcntl.fcntl(folder, fcntl.F_DUPFD_CLOEXEC, 0), found  # the lowest number: no gaps
    finally:
        os.close(folder)


def check(
    status: os.stat_result, path: Path, trusted: frozenset[int], *, sticky: bool = True
) -> None:
    """Check that only `trusted` users can exchange the entries of a folder. `sticky`: a sticky bit
    is enough protection. Raises: UnsafePath."""
    mode = f"user id {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}"
    if status.st_uid not in trusted:
        raise UnsafePath(
            f"{path} belongs to another user ({mode}), who could exchange what is in it: use a "
            f"folder whose whole path belongs to user id {os.geteuid()} or root"
        )
    if not status.st_mode & _WRITABLE or (sticky and status.st_mode & stat.S_ISVTX):
        return
    if not _of_its_owner_alone(status):
        raise UnsafePath(
            f"{path}: others may write to it ({mode}) and could exchange what is in it: "
            f"chmod go-w it, or use another folder"
        )


def trusted_owners() -> frozenset[int]:
    """This user and root. If a user namespace hides ids, also the overflow id that stands for
    them: / and /usr may belong to it, and the creator of the namespace chose the mounts."""
    trusted = {ROOT, os.geteuid()}
    with suppress(OSError):
        trusted |= _stands_for_hidden(_USERS.stat().st_ino)
    return frozenset(trusted)


@lru_cache(maxsize=8)
def _stands_for_hidden(_namespace: int) -> frozenset[int]:
    """The overflow id, if a user namespace hides ids; else empty. Cached by namespace: a store is
    read thousands of times, and this takes longer than reading its file."""
    try:
        hidden = int(_OVERFLOW.read_text())
        rows = [[int(word) for word in row.split()] for row in _UID_MAP.read_text().splitlines()]
    except (OSError, ValueError):
        return frozenset()
    if rows and not any(first <= hidden < first + count for first, _, count in rows):
        return frozenset({hidden})
    return frozenset()


def _of_its_owner_alone(status: os.stat_result) -> bool:
    """Whether the group that may write is the owner's own and has no other member: systems with a
    group for each user (and a umask of 002) create such folders."""
    if status.st_mode & stat.S_IWOTH or status.st_uid == ROOT:
        return False
    try:
        owner, group = pwd.getpwuid(status.st_uid), grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    own = owner.pw_gid == status.st_gid and group.gr_name == owner.pw_name
    return own and not set(group.gr_mem) - {owner.pw_name}


@contextmanager
def _walk(
    path: str | Path, trusted: frozenset[int], make: int | None
) -> Iterator[tuple[int, Path]]:
    """The last folder of `path`, open (O_PATH); every folder before it is checked."""
    parts = _parts(os.path.join(os.getcwd(), path))  # ".." stays
    held = [(os.open("/", _WAY | os.O_DIRECTORY), Path("/"))]
    links = 0
    try:
        while parts:
            name, (here, where) = parts.pop(), held[-1]
            if name == "..":  # the parent is held already; the parent of / is /
                _close(held[max(len(held) - 1, 1) :])
                del held[max(len(held) - 1, 1) :]
                continue
            check(os.fstat(here), where, trusted)
            target = _step(held, name, trusted, make)
            if target is None:
                continue
            if (links := links + 1) > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            if target.startswith("/"):
                _close(held[1:])
                del held[1:]
            parts += _parts(target)
        yield held[-1]
    finally:
        _close(held)


def _parts(path: str) -> list[str]:
    """Components of a path, the last first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _step(
    held: list[tuple[int, Path]], name: str, trusted: frozenset[int], make: int | None
) -> str | None:
    """Enter the folder `name`, or return the target of the link `name`."""
    here, where = held[-1]
    found = _reach(lambda: os.open(name, _WAY, dir_fd=here), name, here, make)
    status = os.fstat(found)
    if stat.S_ISDIR(status.st_mode):
        held.append((found, where / name))
        return None
    os.close(found)
    if not stat.S_ISLNK(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(where / name))
    if status.st_uid not in trusted:
        raise UnsafePath(
            f"{where / name} is a link of another user (user id {status.st_uid}): "
            f"name the folder itself"
        )
    return os.readlink(name, dir_fd=here)


def _reach(enter: Callable[[], int], name: str, here: int, make: int | None) -> int:
    try:
        return enter()
    except FileNotFoundError:
        if make is None:
            raise
    with suppress(FileExistsError):  # another process was faster
        os.mkdir(name, make, dir_fd=here)
    return enter()


def _close(held: list[tuple[int, Path]]) -> None:
    for descriptor, _ in held:
        os.close(descriptor)
