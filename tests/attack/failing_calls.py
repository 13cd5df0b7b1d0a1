"""System calls of a child process that fail as a test says: a library in front of libc.

One plan at a time, in memory that test and child share.
"""

import mmap
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_suffix(".c")
PLAN = struct.Struct("64s7i")
FIRED_AT = 64 + 4 * 4
PATIENCE = 20.0  # seconds until a call that was to fail must have been made
FOR_EVER = -1


class Kind(IntEnum):
    """Of the descriptor; `enum kind` of failing_calls.c."""

    ANY = 0
    UDP = 1
    COMMAND = 2  # of an engine, towards control
    LANE = 3  # a UNIX socket without a name: a lane, or control's end of an engine
    TCP = 4
    CLIENT = 5  # a UNIX socket with a name: a client of control, or its listener


class FailingCalls:
    """The library, built, and the plan."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("gcc") is None:
            pytest.skip("no gcc")
        self._library = folder / "failing_calls.so"
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-O1", "-w", "-o", str(self._library), str(SOURCE), "-ldl"],
            check=True,
        )
        self._file = folder / "plan"
        self._file.write_bytes(bytes(PLAN.size))
        with self._file.open("r+b") as file:
            self._plan = mmap.mmap(file.fileno(), PLAN.size)

    @property
    def environ(self) -> dict[str, str]:
        """Of the child, beside what it has."""
        return {"LD_PRELOAD": str(self._library), "FAILING_CALLS": str(self._file)}

    def before(self, command: Sequence[str]) -> list[str]:
        """A command with the library in front of libc."""
        return ["env", *(f"{name}={value}" for name, value in self.environ.items()), *command]

    def arm(  # all but two by keyword
        self,
        calls: str,
        error: int,
        *,
        kind: Kind = Kind.ANY,
        port: int = 0,
        times: int = 1,
        pid: int = 0,
        inode: int = 0,
    ) -> None:
        """The next `times` of these calls (names with spaces between) fail, on descriptors of a
        kind, with this local or remote port, in process `pid`, of the socket `inode`; 0: any."""
        self.disarm()
        names = "|" + "|".join(calls.split()) + "|"
        # in one step but for `left`, which comes last
        self._plan[:] = PLAN.pack(names.encode(), kind, port, error, 0, 0, pid, inode)
        self._plan[76:80] = struct.pack("i", times)

    def disarm(self) -> None:
        """Nothing fails."""
        self._plan[76:80] = bytes(4)

    @property
    def fired(self) -> int:
        """Calls that have failed so since `arm`."""
        (fired,) = struct.unpack_from("i", self._plan, FIRED_AT)
        return int(fired)

    def await_fired(self) -> None:
        """Until one has."""
        until = time.monotonic() + PATIENCE
        while not self.fired:
            assert time.monotonic() < until, "the call was not made"
            time.sleep(0.001)


def label(number: int) -> str:
    return f"{number} ({os.strerror(number)})"
