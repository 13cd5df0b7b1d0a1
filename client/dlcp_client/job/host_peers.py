"""Ranks of one machine share a private daemon, so that their exchanges stay in memory.

Every rank opens a listening socket and tells the others its path and its machine. The first rank of
a machine hands its socket to the daemon that it starts; the others connect to it, which succeeds
even before the daemon runs.
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
    """Identifies processes that can share a daemon: one kernel, network namespace, mount namespace
    (the socket's path differs in another), user, and configuration, with the command line
    `options`. Empty if unknown."""
    with suppress(OSError):
        text = (config.read_bytes() if config else b"") + repr(list(options)).encode()
        spaces = (_NETWORK.stat().st_ino, _MOUNTS.stat().st_ino)
        parts = (_BOOT.read_text().strip(), *spaces, os.getuid())
        return "/".join(map(str, (*parts, hashlib.sha256(text).hexdigest()[:16])))
    return ""


def answers(socket_path: str) -> bool:
    """Whether a daemon listens at a path, even if it is too busy to accept now."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.setblocking(False)
        return sock.connect_ex(socket_path) in (0, errno.EAGAIN)


@dataclass(frozen=True, slots=True)
class HostPeers:
    """The ranks that a rank's private daemon serves, in order. `owner`: the rank whose socket they
    use; it starts the daemon or has one running. `launch`: a digest of random values of all ranks,
    equal on all and unique to the launch."""

    rank: int
    ranks: tuple[int, ...]
    owner: int
    socket_path: str  # path of the socket of `owner`
    running: bool = False
    launch: str = ""

    @property
    def first(self) -> bool:
        """Whether this rank starts the daemon."""
        return self.rank == self.owner and not self.running

    @classmethod
    def meet(  # noqa: PLR0917  # identity, place and deadline
        cls,
        member: Member,
        subject: str,
        here: str,
        socket_path: str,
        deadline: float,
        running: bool = False,
    ) -> Self:
        """Publish where this rank runs (`here`, from `machine`), and read where the others run.
        `running`: a daemon of an earlier session listens at `socket_path`.

        Raises: as Meeting.gather; BadMessage.
        """
        meeting = Meeting(member, subject)
        meeting.publish(
            {"machine": here, "socket_path": socket_path, "running": running, **fresh()}
        )
        said = meeting.gather(deadline)
        return replace(cls.among(member.rank, said), launch=launch_of(said))

    @classmethod
    def among(cls, rank: int, said: Sequence[dict[str, Any]]) -> Self:
        """The host peers, from the values that every rank published. A rank whose daemon runs keeps
        it. The other ranks of its machine use the first such daemon, or start one together. Raises:
        BadMessage.
        """
        try:
            own = said[rank]["machine"]
            alike = [each for each, told in enumerate(said) if own and told["machine"] == own]
            running = [each for each in alike or [rank] if said[each].get("running") is True]
            owner = rank if rank in running else (running or alike or [rank])[0]
            ranks = tuple(alike) or (rank,)
            return cls(rank, ranks, owner, str(said[owner]["socket_path"]), owner in running)
        except KeyError as exc:
            raise BadMessage(
                f"a rank published no {exc}: run the same version of dlcp_client on all ranks"
            ) from exc

    def connect(self, timeout: float) -> ControlConnection:
        """Connect to the daemon that the first of the ranks starts.

        Raises: DaemonUnavailable; NotPermitted if another user listens at the path in the store.
        """
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        owner = f"the daemon that rank {self.owner} started for this machine"
        try:
            connect(sock, self.socket_path, timeout)
        except OSError as exc:
            sock.close()
            raise DaemonUnavailable(
                f"{owner} does not answer: {exc.strerror or exc}; see the output of that rank"
            ) from exc
        if (user := _listener(sock)) not in (0, os.getuid()):
            sock.close()
            raise NotPermitted(
                f"the process that answers as {owner} belongs to user id {user}, not to "
                f"{os.getuid()}: another program writes to the job's store; give the job a "
                "secret (docs/security.md)"
            )
        return ControlConnection(sock, lambda: f"{owner} ended; see the output of that rank")


def _listener(sock: socket.socket) -> int:
    """The user id of the process that listens at the other end, from when it began to listen."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])
