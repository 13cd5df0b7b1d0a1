"""A wall clock that jumps: libfaketime reads a file at every call. CLOCK_MONOTONIC is unchanged: it
does not jump on real hosts either."""

import os
from pathlib import Path
from typing import Final

_LIBRARY: Final = "/usr/lib/{}-linux-gnu/faketime/libfaketimeMT.so.1"


def library() -> str:
    """Path of libfaketime; "" if it is not installed."""
    file = _LIBRARY.format(os.uname().machine)
    return file if Path(file).exists() else ""


class Clock:
    """The wall clock of all processes with its `environ`; no other process reads `file`."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def set(self, offset: int) -> None:
        """Set the clock `offset` seconds ahead of the real time."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{offset:+d}\n")
        new.rename(self._file)  # atomic for readers

    def environ(self) -> dict[str, str]:
        """Variables for the processes; sets the offset to 0."""
        self.set(0)
        return {
            "LD_PRELOAD": library(),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
