"""Opens files in a folder that is held open: the checked folder is the one that is used.

All files in configured folders are opened here. Names are looked up in the open folder: moving it,
or putting another in its place, has no effect. No link is followed, and every opened file is a
regular file of this user or root.
"""

import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final, Self

from dlcpd.ipc.safe_path import MAX_LINKS, UnsafePath, check, open_folder, trusted_owners

PRIVATE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700
_FLAGS: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # NONBLOCK: a pipe would wait
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL
UNFINISHED: Final = ".new"  # suffix of files that are being written


class HeldFolder:
    """An open folder: close it after use, or use it as a context manager.

    Every method raises OSError; its subclass UnsafePath if another user could exchange the file.
    """

    def __init__(self, descriptor: int, path: Path) -> None:
        """Takes over `descriptor`. `path`, for messages, is the path at the time of opening."""
        self.descriptor, self.path = descriptor, path

    @classmethod
    def open(cls, path: str | Path, *, make: int | None = None, shared: bool = False) -> Self:
        """The folder at `path`, after a check of its whole path: see `open_folder`."""
        return cls(*open_folder(path, make=make, shared=shared))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        return str(self.path)

    def close(self) -> None:
        """Close the descriptor. Closing twice is fine."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def names(self) -> list[str]:
        """Names of all entries."""
        return os.listdir(self.descriptor)

    def status(self, name: str) -> os.stat_result:
        """Status of an entry; of a link, that of the link itself."""
        return os.stat(_plain(name), dir_fd=self.descriptor, follow_symlinks=False)

    def has(self, name: str) -> bool:
        """Whether there is an entry of this name."""
        try:
            self.status(name)
        except FileNotFoundError:
            return False
        return True

    def link(self, name: str) -> str | None:
        """Target of a link of this user or root; None if the entry is no link."""
        status = self.status(name)
        if not stat.S_ISLNK(status.st_mode):
            return None
        if status.st_uid not in trusted_owners():
            raise UnsafePath(
                f"{self.path / name} is a link of another user (user id "
                f"{status.st_uid}): put the file itself there"
            )
        return os.readlink(_plain(name), dir_fd=self.descriptor)

    def new_folder(self, name: str, mode: int = PRIVATE_FOLDER) -> "HeldFolder":
        """Create a folder in it and open that. Raises: FileExistsError."""
        os.mkdir(_plain(name), mode, dir_fd=self.descriptor)
        return self.folder(name)

    def folder(self, name: str, *, make: int | None = None) -> "HeldFolder":
        """Open a folder in it, to which no other user may write. `make`: mode to create it with
        if it is missing."""
        if make is not None:
            with suppress(FileExistsError):
                os.mkdir(_plain(name), make, dir_fd=self.descriptor)
        flags = _FLAGS | os.O_RDONLY | os.O_DIRECTORY
        descriptor = os.open(_plain(name), flags, dir_fd=self.descriptor)
        found = HeldFolder(descriptor, self.path / name)
        try:
            check(os.fstat(descriptor), found.path, trusted_owners(), sticky=False)
        except UnsafePath:
            found.close()
            raise
        return found

    def descriptor_of(self, name: str, flags: int, mode: int = PRIVATE) -> int:
        """Open a file; `flags` and `mode` as for os.open."""
        try:
            descriptor = os.open(_plain(name), flags | _FLAGS, mode, dir_fd=self.descriptor)
        except OSError as exc:
            if exc.errno == errno.ELOOP:
                raise UnsafePath(
                    f"{self.path / name} is a link, which is not followed: put the "
                    f"file itself there"
                ) from exc
            raise
        try:
            check_file(os.fstat(descriptor), self.path / name, trusted_owners())
        except UnsafePath:
            os.close(descriptor)
            raise
        return descriptor

    def reading(self, name: str) -> IO[bytes]:
        """Open a file to read."""
        return os.fdopen(self.descriptor_of(name, os.O_RDONLY), "rb")

    def read(self, name: str, most: int = -1) -> bytes:
        """Content of a file, at most `most` bytes; -1: all of it."""
        with self.reading(name) as file:
            return file.read(most)

    def new(self, name: str, mode: int = PRIVATE) -> IO[bytes]:
        """Create a file and open it to write. Raises: FileExistsError."""
        return os.fdopen(self.descriptor_of(name, _NEW, mode), "wb")

    def replace(
        self,
        name: str,
        data: bytes,
        mode: int = PRIVATE,
        *,
        sync: bool = False,
        sweep: bool = True,
    ) -> None:
        """Replace a file atomically: a reader sees the old content or `data`.

        `sync`: content and name are durable on return. `sweep`: as for `replacing`.
        """
        with self.replacing(name, mode, sweep=sweep) as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        if sync:
            os.fsync(self.descriptor)

    @contextmanager
    def replacing(
        self, name: str, mode: int = PRIVATE, *, exclusive: bool = False, sweep: bool = True
    ) -> Iterator[IO[bytes]]:
        """A file that replaces `name` when the block ends without an exception.

        A link of that name is replaced, and its target is unchanged. `exclusive`: an existing
        entry stays, and FileExistsError is raised. `sweep`: first remove what processes of this
        user left of it that were killed in such a block; that lists the folder.
        """
        if sweep:
            self._sweep(re.compile(rf"{re.escape(name)}\.[0-9a-f]{{16}}{re.escape(UNFINISHED)}"))
        unfinished, file = self._unfinished(name, mode)
        lock = os.dup(file.fileno())
        try:
            with file:
                yield file
            if exclusive:
                here = self.descriptor
                os.link(unfinished, _plain(name), src_dir_fd=here, dst_dir_fd=here)
                self.remove(unfinished)
            else:
                self.rename(unfinished, name)
        except BaseException:
            with suppress(OSError):
                self.remove(unfinished)
            raise
        finally:
            os.close(lock)

    def _unfinished(self, name: str, mode: int) -> tuple[str, IO[bytes]]:
        """Name of a new file and the file, locked while any process has it open, so that `_sweep`
        passes it over. Where files cannot be locked, no process can sweep."""
        while True:
            unfinished = f"{name}.{secrets.token_hex(8)}{UNFINISHED}"
            file = self.new(unfinished, mode)
            with suppress(OSError):
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self.has(unfinished):
                return unfinished, file
            file.close()  # another process took it for an abandoned one, before it was locked

    def _sweep(self, pattern: re.Pattern[str]) -> None:
        """Remove the files of this user that match and that no process has locked."""
        for name in filter(pattern.fullmatch, self.names()):
            with suppress(OSError):
                descriptor = self.descriptor_of(name, os.O_RDWR)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if os.fstat(descriptor).st_uid == os.geteuid():
                        self.remove(name)
                finally:
                    os.close(descriptor)

    def rename(self, name: str, other: str) -> None:
        """Rename a file to `other`, which is replaced if it exists."""
        here = self.descriptor
        os.rename(_plain(name), _plain(other), src_dir_fd=here, dst_dir_fd=here)

    def remove(self, name: str, *, missing_ok: bool = False) -> None:
        """Remove a file, or a link itself."""
        try:
            os.unlink(_plain(name), dir_fd=self.descriptor)
        except FileNotFoundError:
            if not missing_ok:
                raise


@contextmanager
def holding(
    file: str | Path, *, make: int | None = None, shared: bool = False
) -> Iterator[tuple[HeldFolder, str]]:
    """The open folder of a configured file, and the name of the file in it."""
    path = Path(file)
    with HeldFolder.open(path.parent, make=make, shared=shared) as folder:
        yield folder, path.name


def read_trusted(file: str | Path, most: int, *, forbidden: int) -> bytes:
    """The first `most` bytes of a file that only this user or root can have put there.

    A link at the path is followed if it belongs to this user or root, as links within the path
    are: secrets that Kubernetes mounts are such links. `forbidden`: mode bits that must not be
    set; 0o077 for secrets.

    Raises: UnsafePath that names the file or folder and the remedy; OSError.
    """
    path = Path(file)
    for _ in range(MAX_LINKS):
        with holding(path, shared=True) as (folder, name):
            target = folder.link(name)
            if target is None:
                with folder.reading(name) as opened:
                    check_file(os.fstat(opened.fileno()), folder.path / name, None, forbidden)
                    return opened.read(most)
            path = folder.path / target
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(file))


def check_file(
    status: os.stat_result, path: Path, trusted: frozenset[int] | None, forbidden: int = 0
) -> None:
    """Check that a file is regular, belongs to a `trusted` user (None: to any), and has no
    `forbidden` mode bits. Raises: UnsafePath."""
    mode, me = stat.S_IMODE(status.st_mode), os.geteuid()
    if stat.S_ISLNK(status.st_mode):
        raise UnsafePath(f"{path} is a link, which is not followed: name the file itself")
    if not stat.S_ISREG(status.st_mode):
        raise UnsafePath(f"{path} is no regular file")
    if trusted is not None and status.st_uid not in trusted:
        raise UnsafePath(
            f"{path} belongs to user id {status.st_uid}; it must be of root or of "
            f"user id {me}, who runs this: chown {me} {path}"
        )
    if mode & forbidden:
        what = "read" if forbidden & 0o044 else "write"
        raise UnsafePath(
            f"{path} has mode {mode:04o}; others may {what} it: chmod {mode & ~forbidden:o} {path}"
        )


def _plain(name: str) -> str:
    if not name or "/" in name or name in (".", ".."):
        raise UnsafePath(f"{name!r} is no name of a file")
    return name
