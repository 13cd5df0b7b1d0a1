"""Ranks of one machine share a private daemon, so that what they exchange stays in memory.

Every rank opens a listening socket and tells the others its name and where it runs. The first rank
of a machine hands its socket to the daemon that it starts; the others connect to it, which works at
once, before the daemon has started.
"""

import hashlib
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from dlcp_client.ipc.handshake import ControlConnection
from dlcp_client.job.rendezvous import Meeting, Member
from dlcpd.contract.errors import BadMessage, DaemonUnavailable

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NETWORK: Final = Path("/proc/self/ns/net")


def machine(config: Path | None) -> str:
    """Equal for processes that can share a daemon: one kernel, network namespace and user, and
    one configuration. Empty where that cannot be known."""
    with suppress(OSError):
        text = config.read_bytes() if config else b""
        parts = (_BOOT.read_text().strip(), _NETWORK.stat().st_ino, os.getuid())
        return "/".join(map(str, (*parts, hashlib.sha256(text).hexdigest()[:16])))
    return ""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The ranks that share this rank's daemon, itself among them, in order; `door` is the name of
    the first one's socket."""

    rank: int
    ranks: tuple[int, ...]
    door: str

    @property
    def first(self) -> bool:
        """Whether this rank starts the daemon."""
        return self.rank == self.ranks[0]

    @classmethod
    def meet(cls, member: Member, subject: str, here: str, door: str, deadline: float) -> Self:
        """Tell the other ranks where this one runs (`here`, as `machine` says) and hear of theirs.

        Raises: as Meeting.gather; BadMessage.
        """
        meeting = Meeting(member, subject)
        meeting.publish({"machine": here, "door": door})
        return cls.among(member.rank, meeting.gather(deadline))

    @classmethod
    def among(cls, rank: int, said: Sequence[dict[str, Any]]) -> Self:
        """From what every rank said of itself. Raises: BadMessage."""
        try:
            mine = said[rank]["machine"]
            alike = [each for each, told in enumerate(said) if mine and told["machine"] == mine]
            ranks = tuple(alike) or (rank,)
            return cls(rank, ranks, str(said[ranks[0]]["door"]))
        except KeyError as exc:
            raise BadMessage(f"a rank said nothing of its {exc}: is its dlcpd older?") from exc

    def connect(self, timeout: float) -> ControlConnection:
        """Connect to the daemon that the first of the ranks starts. Raises: DaemonUnavailable."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.settimeout(timeout)
        owner = f"the daemon that rank {self.ranks[0]} started for this machine"
        try:
            sock.connect(self.door)
        except OSError as exc:
            sock.close()
            raise DaemonUnavailable(
                f"{owner} does not answer: {exc.strerror or exc}; see that rank's output"
            ) from exc
        return ControlConnection(sock, lambda: f"{owner} ended; see that rank's output")
