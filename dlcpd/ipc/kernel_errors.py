"""What an error number of a system call says about a socket: whose fault it is, and what to do.

The network, a peer, a client or a host short of memory can leave any error on a socket. Only
OURS are a bug of this package; every other one is counted by its name, and the caller goes on.
"""

import errno
from typing import Final

OURS: Final = frozenset({errno.EBADF, errno.ENOTSOCK})
# About the datagram at hand: a second try says the same. All other errors of a send are taken for
# pending ones, which ICMP left for the next call on the socket (icmp_err_convert of Linux).
_OF_THIS_DATAGRAM: Final = frozenset(
    {0, errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM, errno.EPERM, errno.EIO, errno.EINVAL,
     errno.EFAULT}
)  # fmt: skip
# An accept that fails by these fails again at once, and poll calls the listener readable.
SHORT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
ACCEPT_REST: Final = 0.5  # seconds without accepting where descriptors or memory are short


def is_pending(number: int | None) -> bool:
    """Whether a send that failed so may be about an earlier datagram: taking note clears it."""
    return number is not None and number not in OURS and number not in _OF_THIS_DATAGRAM


def name(number: int | None) -> str:
    """For a counter."""
    return errno.errorcode.get(number or 0, "error")
