"""What an error number of a system call says about a socket: whose fault it is, and what to do.

The network, a peer, a client or a host short of memory can leave any error on a socket. Only
OURS are a bug of this package; every other one is counted by its name, and the caller goes on.
"""

import errno
from collections.abc import Callable
from typing import Final

OURS: Final = frozenset({errno.EBADF, errno.ENOTSOCK})
# About the datagram at hand: a second try says the same. All other errors of a send are taken for
# pending ones, which ICMP left for the next call on the socket (icmp_err_convert of Linux).
_OF_THIS_DATAGRAM: Final = frozenset(
    {0, errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM, errno.EPERM, errno.EIO, errno.EINVAL,
     errno.EFAULT}
)  # fmt: skip
TRIES: Final = 64  # failures in a row after which a socket is taken for gone: each is a wake-up


class Failures:
    """Failed calls on a stream or packet socket; `count` gets the name of each."""

    def __init__(self, count: Callable[[str], None], what: str) -> None:
        self._count, self._what, self._in_a_row = count, what, 0

    def noted(self, why: OSError) -> bool:
        """Count it. True: the socket is gone, as this error or so many in a row show."""
        self._in_a_row += 1
        self._count(f"{self._what}_{name(why.errno)}")
        return is_gone(why) or self._in_a_row >= TRIES

    def over(self) -> None:
        """A call has gone well."""
        self._in_a_row = 0


def is_gone(why: OSError) -> bool:
    """Whether the other end has gone, or the socket itself."""
    return isinstance(why, ConnectionError) or why.errno in OURS


def is_pending(number: int | None) -> bool:
    """Whether a send that failed so may be about an earlier datagram: taking note clears it."""
    return number is not None and number not in OURS and number not in _OF_THIS_DATAGRAM


def name(number: int | None) -> str:
    """For a counter."""
    return errno.errorcode.get(number or 0, "error")
