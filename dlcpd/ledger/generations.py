"""The files of one ledger: generations, of which the oldest make room for new ones."""

import os
import shutil
from collections import deque
from pathlib import Path
from typing import Final

import numpy as np

from dlcpd.ledger.records import Ended
from dlcpd.numerics.elements import Array

COUNT: Final = 8  # generations whose records are kept; inputs of one before them are as well
SUFFIX: Final = ".ledger"
INPUTS: Final = ".inputs"  # of a folder beside the file of its generation
FILE_MODE: Final = 0o600  # gradients are nobody else's business
FOLDER_MODE: Final = 0o700


class Generations:
    """Appends to the newest. Together they have at most `most` bytes, and what the operations in
    flight take: a generation is full when it has a ninth of that, and nine are there."""

    def __init__(self, folder: Path, most: int) -> None:
        """Makes the folder. Raises: OSError."""
        self.folder, self.share = folder, most // (COUNT + 1)
        self.number = -1  # of the newest generation
        self.size = 0  # bytes of it
        self._descriptor = -1
        self._kept: deque[int] = deque()
        folder.parent.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        folder.mkdir(FOLDER_MODE)

    @property
    def full(self) -> bool:
        """Whether the next record belongs to the next generation."""
        return self.number < 0 or self.size >= self.share

    def begin(self) -> None:
        """A new generation. Raises: OSError."""
        self.close()
        self.number += 1
        self.size = 0
        self._descriptor = self._create(self.path(self.number, SUFFIX))
        self._kept.append(self.number)
        if len(self._kept) > COUNT:
            self._remove(self._kept.popleft())

    def append(self, frame: bytes) -> None:
        """Write a record in one call, so that whoever is killed leaves all those before it.

        Raises: OSError.
        """
        left = memoryview(frame)
        while left:
            written = os.write(self._descriptor, left)
            self.size += written
            left = left[written:]

    def store(self, ticket: int, values: Array) -> None:
        """Keep what a rank contributes to an operation. Raises: OSError."""
        folder = self.path(self.number, INPUTS)
        folder.mkdir(FOLDER_MODE, exist_ok=True)
        with os.fdopen(self._create(folder / f"{ticket}.npy"), "wb") as file:
            np.save(file, values)
            self.size += file.tell()

    def path(self, number: int, suffix: str) -> Path:
        """Of a generation: its file, or the folder with its inputs."""
        return self.folder / f"{number:08d}{suffix}"

    def close(self) -> None:
        """No record follows. Closing twice is fine."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _create(self, path: Path) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(path, flags, FILE_MODE)

    def _remove(self, number: int) -> None:
        """Inputs stay one generation longer: an operation may have begun before its end's."""
        self.path(number, SUFFIX).unlink(missing_ok=True)
        shutil.rmtree(self.path(number - 1, INPUTS), ignore_errors=True)


def input_of(folder: Path, ended: Ended) -> Path | None:
    """The file with what a rank contributed to an operation, if it is there."""
    return next(folder.glob(f"*{INPUTS}/{ended.ticket}.npy"), None)
