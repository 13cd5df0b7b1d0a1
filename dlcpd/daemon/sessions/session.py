"""One session: a local rank of a job, its descriptors and timers."""

import asyncio
import os
import socket
from dataclasses import dataclass, field
from typing import Protocol

from dlcpd.contract.errors import DlcpError, TooMany
from dlcpd.daemon.peers.membership import Link, Membership
from dlcpd.daemon.peers.peers import PeerAddress
from dlcpd.daemon.sessions.aborts import Aborts
from dlcpd.daemon.sessions.proof import Proof
from dlcpd.daemon.sessions.silence import Silence
from dlcpd.io.clients.memory import create_arena
from dlcpd.io.commands import EnginePeer, OpenSession
from dlcpd.ipc.seqpacket import close_all
from dlcpd.schedules.network import FIRST_VERSION, HostCapacity


class JoinedClient(Protocol):
    """Interface of the connection that joined."""

    uid: int  # user at the other end

    def joined(self, session: int, arena_bytes: int, descriptors: list[int]) -> None:
        """All peers are up. The receiver owns the descriptors: arena and lane."""

    def refused(self, error: DlcpError) -> None:
        """The join failed."""

    def lost(self, error: DlcpError) -> None:
        """The session ended, not by the client."""


@dataclass(slots=True)
class LocalSession:
    """One local rank."""

    number: int
    membership: Membership
    client: JoinedClient
    arena_bytes: int
    timeout: float  # seconds, of the join
    proof: Proof  # of its peers
    title: str = ""  # of its job, for people; by default the job's name
    engines: tuple[int, ...] = ()  # numbers of its engines, ascending: see Sessions
    begun: bool = False  # its engines are up, so peers may get their endpoints
    joined_at: float = 0.0  # loop time; 0 = joining
    opened: bool = False  # the engines were told of it
    complete: bool = False  # those of all ranks serve it
    opening: set[int] = field(default_factory=set)  # engines that do not serve it yet
    broken: str = ""  # why every further operation fails
    broken_code: str = ""  # its code in contract.errors
    parted: bool = False  # the peers were told that it ended
    leaving: DlcpError | None = None  # why the client left, while its session still delivers
    delivering: set[int] = field(default_factory=set)  # engines that still deliver, while it leaves
    silent: bool = False  # peers do not know yet that it leaves
    inherits: int = 0  # session whose residuals it takes over
    # not handed on yet: arena, and for each engine its own and the client's end of a lane
    descriptors: list[int] = field(default_factory=list)
    timers: dict[str, asyncio.Handle] = field(default_factory=dict)
    aborts: Aborts = field(default_factory=Aborts)  # of peers
    silence: Silence = field(default_factory=Silence)  # of peers
    network: list[tuple[str, HostCapacity]] = field(default_factory=list)  # of its hosts
    version: int = FIRST_VERSION  # of this network
    plan: str = ""  # schedule of a large all-reduce, and why; empty until the peers are up

    def __post_init__(self) -> None:
        self.title = self.title or self.membership.job

    @property
    def name(self) -> tuple[str, int]:
        """Job and rank: what peers call it."""
        return self.membership.job, self.membership.rank

    @property
    def state(self) -> str:
        """For reports: joining, open, broken or leaving."""
        if self.leaving:
            return "leaving"
        if self.broken:
            return "broken"
        return "open" if self.joined_at else "joining"

    @property
    def least_bps(self) -> int:
        """The least rate of a host or an uplink of its network, bit/s; 0: it is not known."""
        told = [capacity for _, capacity in self.network]
        rates = [rate for one in told for rate in (sum(one.out_bps), sum(one.in_bps))]
        uplinks = [rate for one in told for rate in (one.up_bps, one.down_bps) if rate]
        return min([*rates, *uplinks], default=0)

    def __str__(self) -> str:
        return f"rank {self.membership.rank} of job {self.title!r} on {self.membership.host}"


def address_of(link: Link) -> PeerAddress:
    """Address of a link's control process."""
    return PeerAddress(link.endpoint, link.key)


def resources(arena_bytes: int, engines: int) -> list[int]:
    """Arena, and for each engine its own and the client's end of a lane.

    Raises: ArenaFull, TooMany; nothing is left open.
    """
    made = [create_arena(arena_bytes)]
    try:
        for _ in range(engines):
            ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            made += [end.detach() for end in ends]
    except OSError as exc:
        close_all(made)
        raise TooMany(f"no lane for a session: {exc.strerror}") from exc
    return made


def duplicates(descriptor: int, count: int) -> list[int]:
    """`count` duplicates of a descriptor.

    Raises: TooMany; nothing is left open.
    """
    made: list[int] = []
    try:
        made.extend(os.dup(descriptor) for _ in range(count))
    except OSError as exc:
        close_all(made)
        raise TooMany(f"no descriptor left for a session: {exc.strerror}") from exc
    return made


def cancel_timers(session: LocalSession) -> None:
    """Repeat no more hellos, and let no join time out."""
    for timer in session.timers.values():
        timer.cancel()
    session.timers.clear()


def close_descriptors(session: LocalSession) -> None:
    """Close what was not handed on."""
    close_all(session.descriptors)
    session.descriptors = []


def open_command(session: LocalSession, engine: int) -> OpenSession:
    """The command for the engine at position `engine` of the session, once every link is up."""
    membership = session.membership
    keyed = bool(membership.agreed["checksum"] or membership.agreed["data_encryption"])
    return OpenSession(
        session=session.number,
        job=membership.job,
        rank=membership.rank,
        world_size=membership.agreed["world_size"],
        arena_bytes=session.arena_bytes,
        peers=[_for_engine(link, engine, keyed=keyed) for link in membership.links.values()],
        engine=engine,
        engines=membership.engines_used,
        digest_key=membership.digest_key,
        inherits=session.inherits,
        network=session.network,
        round_trip=membership.longest_round_trip,
        costs=membership.largest_costs,
    )


def _for_engine(link: Link, engine: int, *, keyed: bool) -> EnginePeer:
    """A peer for one engine. Keys differ by engine: a datagram for one is invalid at another."""
    ends = link.endpoints_of(engine)
    keys = [bytes.fromhex(secret) + bytes([engine]) for secret in (link.secret_in, link.secret_out)]
    secret_in, secret_out = keys if keyed else (b"", b"")
    return EnginePeer(
        link.rank, link.host, link.token_in, link.token_out, ends, secret_in, secret_out
    )
