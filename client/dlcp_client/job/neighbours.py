"""Ranks of one machine share a private daemon, so that what they exchange stays in memory.

Every rank opens a listening socket and tells the others its path and where it runs. The first rank
of a machine hands its socket to the daemon that it starts; the others connect to it, which works at
once, before the daemon has started.
"""

import errno
import hashlib
import os
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from dlcp_client.ipc.handshake import ControlConnection
from dlcp_client.job.rendezvous import Meeting, Member, fresh, launch_of
from dlcpd.contract.errors import BadMessage, DaemonUnavailable, NotPermitted
from dlcpd.ipc.seqpacket import connect

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid
_NETWORK: Final = Path("/proc/self/ns/net")
_MOUNTS: Final = Path("/proc/self/ns/mnt")


def machine(config: Path | None, options: Sequence[str] = ()) -> str:
    """Equal for processes that can share a daemon: one kernel, network and mount namespace (in
    another the path of its socket leads elsewhere), one user, and one configuration, `options` of
    its command line among it. Empty where that cannot be known."""
    with suppress(OSError):
        text = (config.read_bytes() if config else b"") + repr(list(options)).encode()
        spaces = (_NETWORK.stat().st_ino, _MOUNTS.stat().st_ino)
        parts = (_BOOT.read_text().strip(), *spaces, os.getuid())
        return "/".join(map(str, (*parts, hashlib.sha256(text).hexdigest()[:16])))
    return ""


def answers(door: str) -> bool:
    """Whether a daemon listens behind a door, though it may be too busy to accept now."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.setblocking(False)
        return sock.connect_ex(door) in (0, errno.EAGAIN)


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The ranks that a rank's private daemon serves or will serve, in order. `home` is the one
    through whose door they come: the rank that starts it, or one whose daemon runs already.
    `launch` is of all ranks: a digest of something new from each of them, so equal on all and never
    seen before."""

    rank: int
    ranks: tuple[int, ...]
    home: int
    door: str  # path of its socket
    running: bool = False
    launch: str = ""

    @property
    def first(self) -> bool:
        """Whether this rank starts the daemon."""
        return self.rank == self.home and not self.running

    @classmethod
    def meet(  # noqa: PLR0917  # who, where and until when
        cls,
        member: Member,
        subject: str,
        here: str,
        door: str,
        deadline: float,
        running: bool = False,
    ) -> Self:
        """Tell the other ranks where this one runs (`here`, as `machine` says) and hear of theirs.
        `running`: a daemon of an earlier session is behind the door.

        Raises: as Meeting.gather; BadMessage.
        """
        meeting = Meeting(member, subject)
        meeting.publish({"machine": here, "door": door, "running": running, **fresh()})
        said = meeting.gather(deadline)
        return replace(cls.among(member.rank, said), launch=launch_of(said))

    @classmethod
    def among(cls, rank: int, said: Sequence[dict[str, Any]]) -> Self:
        """From what every rank said of itself. A rank whose daemon runs stays with it; the others
        of its machine come to the first of those, or start one together. Raises: BadMessage."""
        try:
            mine = said[rank]["machine"]
            alike = [each for each, told in enumerate(said) if mine and told["machine"] == mine]
            running = [each for each in alike or [rank] if said[each].get("running") is True]
            home = rank if rank in running else (running or alike or [rank])[0]
            ranks = tuple(alike) or (rank,)
            return cls(rank, ranks, home, str(said[home]["door"]), home in running)
        except KeyError as exc:
            raise BadMessage(f"a rank said nothing of its {exc}: is its dlcpd older?") from exc

    def connect(self, timeout: float) -> ControlConnection:
        """Connect to the daemon that the first of the ranks starts.

        Raises: DaemonUnavailable; NotPermitted where another user listens at the path in the
            store.
        """
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        owner = f"the daemon that rank {self.home} started for this machine"
        try:
            connect(sock, self.door, timeout)
        except OSError as exc:
            sock.close()
            raise DaemonUnavailable(
                f"{owner} does not answer: {exc.strerror or exc}; see that rank's output"
            ) from exc
        if (user := _listener(sock)) not in (0, os.getuid()):
            sock.close()
            raise NotPermitted(
                f"what answers as {owner} belongs to user id {user}, not to {os.getuid()}: "
                f"somebody writes to the job's store; give the job a secret (docs/security.md)"
            )
        return ControlConnection(sock, lambda: f"{owner} ended; see that rank's output")


def _listener(sock: socket.socket) -> int:
    """The user id of the process that listens at the other end, when it began to."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])
