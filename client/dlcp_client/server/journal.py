"""The durable state of a shard: snapshots, each followed by a log of versions.

A folder of one shard has `snapshot-N`, the state at version N, and `log-N`, a record for each
version after it. A snapshot is written to a temporary file, synced and renamed, so it is complete
or absent. A record is durable before the shard acknowledges its pushes. The last two snapshots are
kept with their logs: if the newest is damaged, the previous one and its log, which ends where the
newest begins, give the same state.

Everything is little-endian and carries a CRC-32, which detects errors of disks and full file
systems, not attacks by a user with write access. So only this user may write to the folder, or
replace a folder above it: the folder is held open, and every name is looked up in it.
"""

import fcntl
import json
import logging
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Final

import numpy as np

from dlcp_client.server.journal_entry import JournalEntry, NotDurable
from dlcpd.contract.errors import BadConfig, BadSnapshot
from dlcpd.ipc.held_folder import PRIVATE_FOLDER, UNFINISHED, HeldFolder

_log: Final = logging.getLogger("dlcpd.server")
KEPT: Final = 2  # number of snapshots
MAX_HEAD: Final = 4 << 20  # bytes of JSON before the arrays; 65,536 tensors of 24 B are 1.5 MB
_FRAME: Final = struct.Struct("<8sIIQ")  # magic, CRC of the rest, bytes of head, bytes of arrays
_SNAPSHOT: Final = b"dlcpPS1\n"
_RECORD: Final = b"dlcpPSr\n"


class JournalLocked(BadConfig):
    """Another process has the shard."""


class Journal:
    """The folder of one shard, locked for this process while it is open.

    `sync` makes the data of a descriptor durable. Without it, written data survives the end of the
    process, but not that of the machine.

    Raises: BadConfig if the folder cannot be used, another user could replace its files, or another
    server has it.
    """

    def __init__(self, folder: Path, sync: Callable[[int], None] = os.fsync) -> None:
        self.folder, self._sync = folder, sync
        self._log: IO[bytes] | None = None
        self._lock = -1
        with self._errors():
            self._held = HeldFolder.open(folder, make=PRIVATE_FOLDER)
        try:
            with self._errors():
                self._lock = self._held.descriptor_of("lock", os.O_RDWR | os.O_CREAT)
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for name in self._held.names():
                    if name.endswith(UNFINISHED):
                        self._held.remove(name, missing_ok=True)
        except BadConfig:
            self.close()
            raise

    def recover(self) -> Iterator[JournalEntry]:
        """The newest complete snapshot, then each version after it; empty for an empty folder.

        Raises: BadSnapshot if acknowledged versions cannot be restored.
        """
        found = self._numbers("snapshot")
        if not found:
            if self._numbers("log"):
                raise BadSnapshot(
                    f"snapshots {self.folder}: a log has no snapshot before it; restore the "
                    "folder from a copy"
                )
            return
        start, snapshot = self._newest_whole(found)
        version = snapshot.version
        yield snapshot
        for number in sorted(n for n in self._numbers("log") if n >= start):
            if number > version:
                raise self._gap(version, number)
            for entry in self._records(number, newest=number >= max(found)):
                if entry.version != version + 1:
                    raise self._gap(version, entry.version)
                version = entry.version
                yield entry
        if version < max(found):
            raise self._gap(version, max(found))

    def append(self, entry: JournalEntry) -> None:
        """Make a version durable. Raises: NotDurable with the disk's error; the version does not
        count, and no other can be appended before a snapshot."""
        if self._log is None:
            raise NotDurable(
                f"{self.folder}: an earlier write to its log failed, so no version can be "
                "stored; see that error"
            )
        try:
            self._write(self._log, _RECORD, entry)
        except OSError as exc:
            self._log.close()
            self._log = None
            raise NotDurable(
                f"{self.folder}: the server cannot write its log: {exc.strerror}"
            ) from exc

    def snapshot(self, entry: JournalEntry) -> None:
        """Write the state, and begin a new log.

        Raises: NotDurable; earlier state stays durable.
        """
        name, following = _name("snapshot", entry.version), _name("log", entry.version)
        with ExitStack() as undo:
            try:
                with self._held.replacing(name) as file:
                    self._write(file, _SNAPSHOT, entry)
                    self._held.remove(following, missing_ok=True)
                    log = undo.enter_context(self._held.new(following))
                self._sync(self._held.descriptor)
            except OSError as exc:
                where = self.folder / name
                raise NotDurable(f"the server cannot write {where}: {exc.strerror}") from exc
            undo.pop_all()
        if self._log is not None:
            self._log.close()
        self._log = log
        self._forget_old()

    def close(self) -> None:
        """Release the folder for another process."""
        if self._log is not None:
            self._log.close()
            self._log = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        self._held.close()

    def _newest_whole(self, numbers: Sequence[int]) -> tuple[int, JournalEntry]:
        """Number and content of the newest complete snapshot. Raises: BadSnapshot."""
        problems = []
        for number in sorted(numbers, reverse=True):
            name = _name("snapshot", number)
            try:
                with self._held.reading(name) as file:
                    entry = _read(file, _SNAPSHOT)
                if entry is None or entry.version != number:
                    raise BadSnapshot("it is damaged or incomplete")
            except (OSError, BadSnapshot) as exc:
                problems.append(f"{name}: {exc}")
                continue
            if problems:
                _log.warning(
                    "%s: %d snapshots are invalid (%s); recovering from %s and the logs after it",
                    self.folder,
                    len(problems),
                    "; ".join(problems),
                    name,
                )
            return number, entry
        raise BadSnapshot(
            f"snapshots {self.folder}: every snapshot is invalid ({'; '.join(problems)}); "
            "restore the folder from a copy, or configure an empty folder to start with a new "
            "model"
        )

    def _records(self, number: int, *, newest: bool) -> Iterator[JournalEntry]:
        """The complete records of a log. A gap in an older log shows in the next one.

        Raises: BadSnapshot if the end of the newest log is no interrupted write.
        """
        name = _name("log", number)
        with self._held.reading(name) as file:
            start = kept = 0
            while (entry := _whole(file)) is not None:
                start, kept = file.tell(), kept + 1
                yield entry
            if newest and not _torn(file, start):
                raise BadSnapshot(
                    f"{self.folder / name}: the log is damaged from byte {start} on; restore "
                    "the folder from a copy"
                )
            if rest := os.fstat(file.fileno()).st_size - start:
                # An interrupted write looks like a damaged last record, and only the latter was
                # acknowledged.
                _log.warning(
                    (
                        "%s: %d records kept, 1 dropped (%d bytes from byte %d on): either the "
                        "server ended while it wrote the record, or the log is damaged, and then "
                        "a confirmed push is lost"
                    ),
                    self.folder / name,
                    kept,
                    rest,
                    start,
                )

    def _write(self, file: IO[bytes], magic: bytes, entry: JournalEntry) -> None:
        head = json.dumps(entry.head).encode()
        data = np.ascontiguousarray(entry.arrays).view(np.uint8).data
        mark = zlib.crc32(data, zlib.crc32(head))
        file.write(_FRAME.pack(magic, mark, len(head), len(data)))
        file.write(head)
        file.write(data)
        file.flush()
        self._sync(file.fileno())

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Convert errors of the folder. Raises: JournalLocked, BadConfig."""
        try:
            yield
        except BlockingIOError as exc:
            raise JournalLocked(
                f"snapshots {self.folder}: another server process has this shard; end that "
                "process, use another folder, or start this process with --standby to take "
                "over when the other one ends"
            ) from exc
        except OSError as exc:
            raise BadConfig(f"snapshots {self.folder}: {exc.strerror}") from exc

    def _forget_old(self) -> None:
        kept = sorted(self._numbers("snapshot"))[-KEPT:]
        for kind in ("snapshot", "log"):
            for number in self._numbers(kind):
                if number < kept[0]:
                    self._held.remove(_name(kind, number))

    def _numbers(self, kind: str) -> list[int]:
        start = f"{kind}-"
        names = [name[len(start) :] for name in self._held.names() if name.startswith(start)]
        return [int(name) for name in names if name.isdecimal()]

    def _gap(self, version: int, following: int) -> BadSnapshot:
        return BadSnapshot(
            f"snapshots {self.folder}: version {following} follows version {version}, so logs "
            "are missing; restore the folder from a copy"
        )


def _name(kind: str, number: int) -> str:
    return f"{kind}-{number}"


def _read(file: IO[bytes], magic: bytes) -> JournalEntry | None:
    """The next entry; None at the end of the file, or if the file ends within the entry.

    Raises: BadSnapshot.
    """
    frame = file.read(_FRAME.size)
    if len(frame) < _FRAME.size:
        return None
    found, mark, head_size, size = _FRAME.unpack(frame)
    if found != magic or head_size > MAX_HEAD or size % 4:
        raise BadSnapshot("it has an unknown format")
    left = os.fstat(file.fileno()).st_size - file.tell()
    if head_size + size > left:
        return None
    head, data = file.read(head_size), file.read(size)
    if zlib.crc32(data, zlib.crc32(head)) != mark:
        raise BadSnapshot("its checksum is wrong")
    try:
        values = json.loads(head)
        return (
            JournalEntry(values, np.frombuffer(data, np.float32))
            if values["version"] >= 0
            else None
        )
    except (ValueError, TypeError, KeyError) as exc:
        raise BadSnapshot("its header is invalid") from exc


def _whole(file: IO[bytes]) -> JournalEntry | None:
    """The next record; None if there is none."""
    try:
        return _read(file, _RECORD)
    except BadSnapshot:
        return None


def _torn(file: IO[bytes], start: int) -> bool:
    """Whether the data from `start` on can be the record of an interrupted write: the file ends
    within the record or with it, or holds zeros of blocks that were never written."""
    file.seek(0, os.SEEK_END)
    end = file.tell()
    file.seek(start)
    frame = file.read(_FRAME.size)
    if len(frame) < _FRAME.size:
        return True
    magic, _, head_size, size = _FRAME.unpack(frame)
    if not any(magic):
        return True
    return bool(magic == _RECORD and start + _FRAME.size + head_size + size >= end)
