"""A folder that is held open, and the files in it: what was checked is what is used.

Every file that the product opens by name in a folder that it is told of, it opens here. Names are
looked up in the open folder, so the folder may be moved, or another put in its place, and nothing
changes here. No link is followed, and what is opened is a regular file of this user or root.
"""

import errno
import os
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
UNFINISHED: Final = ".new"  # how the names end of files that are being written


class HeldFolder:
    """Close it after use, or use it as a context manager.

    Every method raises OSError; UnsafePath, which is one, for what another user could exchange.
    """

    def __init__(self, descriptor: int, path: Path) -> None:
        """Takes over `descriptor`. `path` is for messages, and as it was when it was opened."""
        self.descriptor, self.path = descriptor, path

    @classmethod
    def open(cls, path: str | Path, *, make: int | None = None, shared: bool = False) -> Self:
        """The folder at `path`, after a look at its whole way: see `open_folder`."""
        return cls(*open_folder(path, make=make, shared=shared))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        return str(self.path)

    def close(self) -> None:
        """Let go of it; twice is fine."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def names(self) -> list[str]:
        """Of what is in it."""
        return os.listdir(self.descriptor)

    def status(self, name: str) -> os.stat_result:
        """Of a name, also of a link itself."""
        return os.stat(_plain(name), dir_fd=self.descriptor, follow_symlinks=False)

    def has(self, name: str) -> bool:
        """Whether there is something of this name."""
        try:
            self.status(name)
        except FileNotFoundError:
            return False
        return True

    def link(self, name: str) -> str | None:
        """What a name is a link to, where it is a link of this user or root."""
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
        """A folder in it that was not there. Raises: FileExistsError."""
        os.mkdir(_plain(name), mode, dir_fd=self.descriptor)
        return self.folder(name)

    def folder(self, name: str, *, make: int | None = None) -> "HeldFolder":
        """A folder in it, to which nobody else may write. `make`: its mode, where it is not there
        yet."""
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
        """Open a file; `flags` and `mode` as of os.open."""
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
        """Open to read."""
        return os.fdopen(self.descriptor_of(name, os.O_RDONLY), "rb")

    def read(self, name: str, most: int = -1) -> bytes:
        """The content, `most` bytes of it."""
        with self.reading(name) as file:
            return file.read(most)

    def new(self, name: str, mode: int = PRIVATE) -> IO[bytes]:
        """A file that was not there. Raises: FileExistsError."""
        return os.fdopen(self.descriptor_of(name, _NEW, mode), "wb")

    def replace(self, name: str, data: bytes, mode: int = PRIVATE, *, sync: bool = False) -> None:
        """Put `data` there as a whole: a reader sees the file before or this one.

        `sync`: it is durable after, and so is its name.
        """
        with self.replacing(name, mode) as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        if sync:
            os.fsync(self.descriptor)

    @contextmanager
    def replacing(
        self, name: str, mode: int = PRIVATE, *, exclusive: bool = False
    ) -> Iterator[IO[bytes]]:
        """A file that takes the place of `name` when the block ends, unless by an exception.

        A link that had the name is gone then, and what it led to is as it was. `exclusive`: what
        has the name stays, and FileExistsError is raised.
        """
        unfinished = f"{name}.{secrets.token_hex(8)}{UNFINISHED}"
        file = self.new(unfinished, mode)
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

    def rename(self, name: str, other: str) -> None:
        """Give a file another name; what had that is gone."""
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
    """The folder of a file whose path the product was told, and its name there."""
    path = Path(file)
    with HeldFolder.open(path.parent, make=make, shared=shared) as folder:
        yield folder, path.name


def read_trusted(file: str | Path, most: int, *, forbidden: int) -> bytes:
    """The first `most` bytes of a file that nobody but this user and root can have put there.

    A link in its place is followed where it belongs to this user or root, as links on the way are:
    secrets that Kubernetes mounts are such links. `forbidden`: the bits of its mode that must not
    be set; 0o077 is for secrets.

    Raises: UnsafePath naming the file or folder and the cure; OSError.
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
    """That it is a regular file of a `trusted` user (None: of any), and that its mode has no
    `forbidden` bits. Raises: UnsafePath."""
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
