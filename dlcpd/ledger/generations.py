"""The files of one ledger: generations, of which the oldest are removed for new ones."""

import os
import shutil
from collections import deque
from pathlib import Path
from typing import Final

import numpy as np

from dlcpd.ipc.held_folder import PRIVATE_FOLDER, holding
from dlcpd.ledger.records import Ended
from dlcpd.numerics.elements import Array

COUNT: Final = 8  # generations whose records are kept; inputs are kept of one more
SUFFIX: Final = ".ledger"
INPUTS: Final = ".inputs"  # suffix of a folder next to the file of its generation


class Generations:
    """Appends to the newest generation. All together have at most `most` bytes, plus the records
    of operations in flight: a generation is full at a ninth of `most`, and there are nine at most.

    Only this user may read the files: gradients are confidential. The folder is held open.
    """

    def __init__(self, folder: Path, most: int) -> None:
        """Creates the folder. Raises: OSError, UnsafePath if another user could exchange it."""
        self.share = most // (COUNT + 1)
        self.number = -1  # of the newest generation
        self.size = 0  # bytes of it
        self._descriptor = -1
        self._kept: deque[int] = deque()
        with holding(folder, make=PRIVATE_FOLDER, shared=True) as (above, name):
            self._held = above.new_folder(name)

    @property
    def full(self) -> bool:
        """Whether the next record belongs to the next generation."""
        return self.number < 0 or self.size >= self.share

    def begin(self) -> None:
        """Begin a new generation. Raises: OSError."""
        self._end()
        self.number += 1
        self.size = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        self._descriptor = self._held.descriptor_of(_name(self.number, SUFFIX), flags)
        self._kept.append(self.number)
        if len(self._kept) > COUNT:
            self._remove(self._kept.popleft())

    def append(self, frame: bytes) -> None:
        """Write a record in one call, so that a killed process leaves all earlier ones complete.

        Raises: OSError.
        """
        left = memoryview(frame)
        while left:
            written = os.write(self._descriptor, left)
            self.size += written
            left = left[written:]

    def store(self, ticket: int, values: Array) -> None:
        """Write the input of a rank to an operation. Raises: OSError."""
        with (
            self._held.folder(_name(self.number, INPUTS), make=PRIVATE_FOLDER) as folder,
            folder.new(f"{ticket}.npy") as file,
        ):
            np.save(file, values)
            self.size += file.tell()

    def close(self) -> None:
        """Close the files. Closing twice is fine."""
        self._end()
        self._held.close()

    def _end(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _remove(self, number: int) -> None:
        """Inputs stay one generation longer: an operation may begin and end in different ones."""
        self._held.remove(_name(number, SUFFIX), missing_ok=True)
        inputs = _name(number - 1, INPUTS)
        shutil.rmtree(inputs, ignore_errors=True, dir_fd=self._held.descriptor)


def _name(number: int, suffix: str) -> str:
    """Name of a generation's file, or of the folder with its inputs."""
    return f"{number:08d}{suffix}"


def input_of(folder: Path, ended: Ended) -> Path | None:
    """The file with the input of a rank to an operation, if it is there."""
    return next(folder.glob(f"*{INPUTS}/{ended.ticket}.npy"), None)
