"""A store in a folder that all ranks of a job see: a rendezvous without torch."""

import fcntl
import hashlib
import os
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

from dlcp_client.job.store import LOOKS, look_until
from dlcpd.contract.errors import BadConfig, BadMessage
from dlcpd.ipc.held_folder import PRIVATE_FOLDER, HeldFolder

MAX_VALUE: Final = 1 << 20  # bytes; ranks publish at most 64 KiB, escaped once more when signed
LOCK_TIMEOUT: Final = 30.0  # seconds; a running process holds the lock for milliseconds


class FileStore:
    """A Store with a file for each key. The folder is made if it is missing; every launch of a job
    needs its own.

    Only this user may write to it, or replace a folder above it: a process that can do so can act
    as a rank, unless the job has a secret. The folder is held open. A value is written atomically;
    counts are kept under a lock of the folder, which NFS supports, too. Nothing is deleted, because
    any rank may still have to read it.

    Raises: BadConfig if the folder, or its content, cannot be used.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder: Final = Path(folder)
        self._claimed = set[int]()  # ranks that connected with this object
        with self._errors():
            self._held = HeldFolder.open(self.folder, make=PRIVATE_FOLDER)
        weakref.finalize(self, self._held.close)

    def claim(self, rank: int) -> None:
        """Take the place of a rank, which must be free or claimed through this object.

        Raises: BadConfig.
        """
        if rank in self._claimed:
            return
        with self._errors():
            try:
                self._held.new(f"rank-{rank}").close()
            except FileExistsError:
                raise BadConfig(
                    f"store {self.folder}: rank {rank} has already connected with it, in this "
                    "launch of the job or in an earlier one: give each launch a new folder, "
                    "and pass one FileStore to all calls of connect"
                ) from None
        self._claimed.add(rank)

    def set(self, key: str, value: str) -> None:
        """Write."""
        with self._locked():
            self._write(key, value)

    def get(self, key: str) -> bytes:
        """Read an existing key. Raises: RuntimeError if it does not exist; BadMessage."""
        with self._errors():
            try:
                value = self._held.read(_name(key), MAX_VALUE + 1)
            except FileNotFoundError:
                raise RuntimeError(f"store {self.folder} has no key {key}") from None
        if len(value) > MAX_VALUE:
            raise BadMessage(f"store {self.folder}: key {key} has more than {MAX_VALUE} B")
        return value

    def add(self, key: str, amount: int) -> int:
        """Add to a counter, which begins at 0. Returns the new value. Raises: BadMessage."""
        with self._locked():
            text = self.get(key) if self.check([key]) else b"0"
            try:
                count = int(text) + amount
            except ValueError as exc:
                raise BadMessage(f"store {self.folder}: {key} is not a count") from exc
            self._write(key, str(count))
            return count

    def wait(self, keys: Sequence[str], timeout: timedelta) -> None:
        """Block until all `keys` exist. Raises: RuntimeError after `timeout`."""
        late = (
            f"store {self.folder}: the keys did not appear within {timeout.total_seconds():.1f} s"
        )
        look_until(lambda: self.check(keys), timeout, late)

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all `keys` exist."""
        with self._errors():
            return all(self._held.has(_name(key)) for key in keys)

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        """Write if the key holds `expected`, or if it does not exist and `expected` is "". Returns
        its new value, or `expected` if it does not exist, as torch's stores do. Takes the lock only
        to write."""
        found = self._found(key)
        if found != expected.encode() and (found is not None or expected):
            return expected.encode() if found is None else found
        with self._locked():
            found = self._found(key)
            if found == expected.encode() or (found is None and not expected):
                self._write(key, desired)
                return desired.encode()
            return expected.encode() if found is None else found

    def _found(self, key: str) -> bytes | None:
        """The value of a key, or None. Raises: BadMessage."""
        try:
            return self.get(key)
        except RuntimeError:
            return None

    def _write(self, key: str, value: str) -> None:
        with self._errors():
            # A killed rank's unfinished file stays: a store is of one launch, and large.
            self._held.replace(_name(key), value.encode(), sweep=False)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._errors():
            descriptor = self._held.descriptor_of("lock", os.O_RDWR | os.O_CREAT)
        try:
            self._lock(descriptor)
            yield
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        over = time.monotonic() + LOCK_TIMEOUT
        while True:
            with self._errors(), suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            if time.monotonic() >= over:
                raise BadConfig(
                    f"store {self.folder}: another process has held the lock for {LOCK_TIMEOUT:g} s"
                )
            time.sleep(LOOKS[0])

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Convert errors of the folder. Raises: BadConfig."""
        try:
            yield
        except OSError as exc:
            raise BadConfig(f"store {self.folder}: {exc.strerror or exc}") from exc


def _name(key: str) -> str:
    """A digest of the key, which may contain slashes and exceed the length of a file name."""
    return hashlib.sha256(key.encode()).hexdigest()
