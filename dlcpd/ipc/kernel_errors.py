"""Classifies error numbers of socket calls: bug, lost socket, pending or temporary error.

The network, a peer, a client or a host short of memory can leave any error on a socket. Only those
in `OURS` are bugs of this package; the others are counted by name, and the caller continues.
"""

import errno
from collections import Counter
from collections.abc import Callable
from typing import Final

OURS: Final = frozenset({errno.EBADF, errno.ENOTSOCK})
# Errors of the datagram itself: a second try fails likewise. All other errors of a send count as
# pending ones, which ICMP left for the next call on the socket (icmp_err_convert of Linux).
_OF_THIS_DATAGRAM: Final = frozenset(
    {0, errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM, errno.EPERM, errno.EIO, errno.EINVAL,
     errno.EFAULT}
)  # fmt: skip
TRIES: Final = 64  # failures in a row after which a socket counts as gone: each costs a wake-up


class CallFailures:
    """Failed calls on a stream or packet socket; `count` gets the name of each."""

    def __init__(self, count: Callable[[str], None], what: str) -> None:
        self._count, self._what, self._in_a_row = count, what, 0

    def noted(self, why: OSError) -> bool:
        """Count a failure. True: the socket is gone, by this error or after TRIES in a row.

        Not counted: an error that says no more than that the other end has closed.
        """
        if isinstance(why, ConnectionError):
            return True
        self._in_a_row += 1
        self._count(f"{self._what}_{name(why.errno)}")
        return is_gone(why) or self._in_a_row >= TRIES

    def over(self) -> None:
        """A call has succeeded."""
        self._in_a_row = 0


def is_gone(why: OSError) -> bool:
    """Whether the other end, or the socket itself, is gone."""
    return isinstance(why, ConnectionError) or why.errno in OURS


def is_pending(number: int | None) -> bool:
    """Whether the error of a send may belong to an earlier datagram: reading it clears it."""
    return number is not None and number not in OURS and number not in _OF_THIS_DATAGRAM


def name(number: int | None) -> str:
    """Name of an error number, for a counter."""
    return errno.errorcode.get(number or 0, "error")


def count(counters: Counter[str], what: str, why: OSError | int | None) -> None:
    """Count a failed call: `what`, and the name of the error or its number."""
    counters[f"{what}_{name(why.errno if isinstance(why, OSError) else why)}"] += 1
