"""A wall clock that jumps: libfaketime looks at a file at every call, and CLOCK_MONOTONIC, which
does not jump on real hosts either, stays as it is."""

import os
from pathlib import Path
from typing import Final

_LIBRARY: Final = "/usr/lib/{}-linux-gnu/faketime/libfaketimeMT.so.1"


def library() -> str:
    """Where libfaketime is; "" where it is not installed."""
    file = _LIBRARY.format(os.uname().machine)
    return file if Path(file).exists() else ""


class Clock:
    """That of all processes with its `environ`; `file` is theirs alone."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def set(self, offset: int) -> None:
        """Show `offset` seconds more than it is."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{offset:+d}\n")
        new.rename(self._file)  # a reader sees either

    def environ(self) -> dict[str, str]:
        """The clock is right until it is set."""
        self.set(0)
        return {
            "LD_PRELOAD": library(),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
