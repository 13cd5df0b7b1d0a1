"""TCP connections of this process: their congestion control, and the segments that they sent."""

import os
import socket
import struct
from dataclasses import dataclass, field
from typing import Final, Self

from dlcpd.contract.errors import BadConfig

# Offsets in struct tcp_info of linux/tcp.h, whose fields never move.
TOTAL_RETRANS: Final = 100
DATA_SEGS_OUT: Final = 156
INFO_BYTES: Final = 160


@dataclass(slots=True)
class Connections:
    """TCP connections that this process made in a `with` block: Gloo does not name its own."""

    made: list[socket.socket] = field(default_factory=list)
    _before: set[int] = field(default_factory=set)

    def __enter__(self) -> Self:
        self._before = set(_inodes())
        return self

    def __exit__(self, *_: object) -> None:
        new = {inode: fd for inode, fd in _inodes().items() if inode not in self._before}
        self.made += filter(None, map(_connection, new.values()))

    def control(self, name: str) -> None:
        """Use a congestion control. Root may choose any; a namespace's default may not.

        Raises: BadConfig if the kernel has none of this name.
        """
        for each in self.made:
            try:
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
            except OSError as exc:
                raise BadConfig(f"TCP congestion control {name}: {exc.strerror}") from exc

    def segments(self) -> tuple[int, int]:
        """Segments with data that were sent so far, and how many of them again."""
        infos = [
            each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO_BYTES) for each in self.made
        ]
        sent, again = (
            sum(struct.unpack_from("I", info, at)[0] for info in infos)
            for at in (DATA_SEGS_OUT, TOTAL_RETRANS)
        )
        return sent, again

    def close(self) -> None:
        """Close the copies of the descriptors; the connections stay their owner's."""
        for each in self.made:
            each.close()


def _inodes() -> dict[int, int]:
    """The descriptors of this process's sockets, by inode."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            link = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # that of the listing itself
            continue
        if link.startswith("socket:["):
            found[int(link[8:-1])] = int(name)
    return found


def _connection(fd: int) -> socket.socket | None:
    """A copy of a descriptor if it is a TCP connection."""
    made = socket.socket(fileno=os.dup(fd))
    try:
        if made.type == socket.SOCK_STREAM and made.family in {socket.AF_INET, socket.AF_INET6}:
            made.getpeername()
            return made
    except OSError:  # it listens
        pass
    made.close()
    return None
