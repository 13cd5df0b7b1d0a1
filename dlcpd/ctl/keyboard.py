"""Single keys of a terminal, without Enter."""

import os
import select
import sys
import termios
import tty
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

END: Final = "q"


class Keyboard:
    """Reads keys where stdin is a terminal in the foreground; elsewhere, only waits. Use as a
    context manager: it leaves the terminal as it was."""

    def __init__(self) -> None:
        self._before: list[Any] | None = None

    def __enter__(self) -> Self:
        if sys.stdin is not None and sys.stdin.isatty():
            self._before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin, termios.TCSANOW)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _exc: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._before is not None:
            with suppress(termios.error):  # hung up
                termios.tcsetattr(sys.stdin, termios.TCSANOW, self._before)

    def key(self, timeout: float) -> str:
        """A key within `timeout` seconds; "" without one, END if the terminal is gone."""
        if self._before is None:
            select.select([], [], [], timeout)
            return ""
        ready, _, _ = select.select([sys.stdin], [], [], timeout)
        if not ready:
            return ""
        try:  # not sys.stdin.read, whose buffer would hide further keys from select
            return os.read(sys.stdin.fileno(), 1).decode("ascii", "replace") or END
        except OSError:  # EIO: hung up
            return END
