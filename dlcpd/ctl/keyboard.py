"""Single keys of a terminal, without Enter."""

import select
import sys
import termios
import tty
from types import TracebackType
from typing import Any, Self


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
            termios.tcsetattr(sys.stdin, termios.TCSANOW, self._before)

    def key(self, timeout: float) -> str:
        """A key within `timeout` seconds; "" without one."""
        if self._before is None:
            select.select([], [], [], timeout)
            return ""
        ready, _, _ = select.select([sys.stdin], [], [], timeout)
        return sys.stdin.read(1) if ready else ""
