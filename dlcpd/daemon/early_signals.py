"""Signals that come while the daemon starts. The starter blocks them, so that none is lost or ends
an import with a traceback; the first process of a container ignores a signal without a handler."""

import signal
from types import FrameType

from dlcpd.starter import HELD

ENDING = (signal.SIGINT, signal.SIGTERM)


def release() -> None:
    """Let all of them have the effect that they have in other programs."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)


def end_on_signals() -> None:
    """From now on SIGINT and SIGTERM end the process, without an error, until the event loop
    handles them. SIGHUP stays blocked until `reload_on_signal`."""
    for number in ENDING:
        signal.signal(number, _end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


def reload_on_signal() -> None:
    """SIGHUP has its handler: deliver it, and one that came before."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGHUP,))


def _end(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)
