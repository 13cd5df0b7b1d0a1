"""sd_notify: tells a service manager when the daemon serves, that it lives, and when it stops."""

import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

READY: Final = "READY=1"
ALIVE: Final = "WATCHDOG=1"
# Variables that a manager sets for one process, and not for its children.
_OF_MANAGER: Final = ("NOTIFY_SOCKET", "WATCHDOG_", "LISTEN_")


class Notifier:
    """Sends states, such as READY, to NOTIFY_SOCKET's value `target`; empty: sends nothing.

    Its socket stays open: a daemon that is short of descriptors must not be taken for dead. If the
    manager does not listen, a state is dropped.
    Source: sd_notify(3).
    """

    def __init__(self, target: str) -> None:
        # @: abstract namespace
        self._address = "\0" + target[1:] if target.startswith("@") else target
        self._sock: socket.socket | None = None

    def close(self) -> None:
        """Close the socket; a further state opens another."""
        if self._sock:
            self._sock.close()
            self._sock = None

    def __call__(self, state: str) -> None:
        if not self._address:
            return
        with suppress(OSError):
            if self._sock is None:
                self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._sock.sendto(state.encode(), socket.MSG_DONTWAIT, self._address)


def stopping(within: float) -> str:
    """The state of a daemon that will have ended in `within` seconds at most."""
    return f"STOPPING=1\nEXTEND_TIMEOUT_USEC={round(within * 1e6)}"


def reloading() -> str:
    """The state of a daemon that reads its configuration again, until it says READY."""
    return f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}"


def watchdog_limit(environ: Mapping[str, str], pid: int) -> float:
    """Seconds within which the manager wants to hear ALIVE from process `pid`; 0: never.

    Source: sd_watchdog_enabled(3).
    """
    limit = environ.get("WATCHDOG_USEC", "")
    if not limit.isdecimal() or environ.get("WATCHDOG_PID", str(pid)) != str(pid):
        return 0.0
    return int(limit) / 1e6


def for_children(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables that the manager set for this process alone."""
    return {name: value for name, value in environ.items() if not name.startswith(_OF_MANAGER)}
