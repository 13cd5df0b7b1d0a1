"""Ignores signals in a private daemon and its engines, which only SIGKILL ends.

Schedulers send signals to all processes of a job, and a trainer that saves a checkpoint needs its
daemon until the trainer ends.
"""

import ctypes
import platform
import signal
from typing import Final

# Numbers of the system call rt_sigaction, by machine. The C library keeps two signals for itself,
# whose default is to end the process, and lets its callers neither ignore nor block them.
_RT_SIGACTION: Final = {"x86_64": 13, "aarch64": 134}
_OF_THE_C_LIBRARY: Final = (32, 33)
_SET_BYTES: Final = 8  # of a signal set
_KEPT: Final = frozenset({signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD})


class _Action(ctypes.Structure):
    """struct kernel_sigaction; unused fields are of the largest layout."""

    _fields_ = (
        ("handler", ctypes.c_ulong), ("flags", ctypes.c_ulong), ("restorer", ctypes.c_ulong),
        ("mask", ctypes.c_ulong),
    )  # fmt: skip


def ignore_all() -> None:
    """Ignore every signal that can be ignored but SIGCHLD, whose default is to do nothing; then
    unblock all. Children inherit it. A fault of the process itself (SIGSEGV) still ends it."""
    for number in signal.valid_signals() - _KEPT:
        signal.signal(number, signal.SIG_IGN)
    call = _RT_SIGACTION.get(platform.machine())
    if call is not None:
        ignored = _Action(handler=1)  # SIG_IGN
        for own in _OF_THE_C_LIBRARY:
            ctypes.CDLL(None).syscall(call, own, ctypes.byref(ignored), None, _SET_BYTES)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
