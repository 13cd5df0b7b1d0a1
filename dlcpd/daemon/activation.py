"""Socket activation: the service manager passes a session socket that already listens.

The socket outlives the daemon: a client that connects between two daemons waits in its backlog.
Source: sd_listen_fds(3).
"""

import socket
from collections.abc import Callable, Mapping
from typing import Final

from dlcpd.contract.errors import BadConfig

FIRST: Final = 3  # SD_LISTEN_FDS_START


def activated(
    environ: Mapping[str, str], pid: int, take: Callable[[int], socket.socket]
) -> socket.socket | None:
    """`take`'s socket for the descriptor passed to process `pid`; None: none was passed.

    Raises: BadConfig for several descriptors; the errors of `take`.
    """
    count = environ.get("LISTEN_FDS", "")
    if not count or environ.get("LISTEN_PID") != str(pid):  # for a parent process
        return None
    if count != "1":
        raise BadConfig(
            f"LISTEN_FDS={count}: a daemon has one session socket; give its socket unit one "
            f"ListenSequentialPacket="
        )
    return take(FIRST)
