"""Socket activation: the session socket as a service manager hands it over, already listening.

It outlives the daemon, so who connects while one daemon ends and the next one starts waits in the
socket's backlog. Source: sd_listen_fds(3).
"""

import socket
from collections.abc import Callable, Mapping
from typing import Final

from dlcpd.contract.errors import BadConfig

FIRST: Final = 3  # SD_LISTEN_FDS_START


def activated(
    environ: Mapping[str, str], pid: int, take: Callable[[int], socket.socket]
) -> socket.socket | None:
    """What `take` makes of the descriptor that was handed to process `pid`; None: there is none.

    Raises: BadConfig for several, and what `take` raises.
    """
    count = environ.get("LISTEN_FDS", "")
    if not count or environ.get("LISTEN_PID") != str(pid):  # it was meant for a parent of ours
        return None
    if count != "1":
        raise BadConfig(
            f"LISTEN_FDS={count}: a daemon has one session socket; give its socket unit one "
            f"ListenSequentialPacket="
        )
    return take(FIRST)
