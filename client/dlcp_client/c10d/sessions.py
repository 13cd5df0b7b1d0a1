"""Assigns process groups to transports: one serves all groups of the job while it is open."""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from dlcpd.contract.errors import DlcpError
from dlcpd.contract.policy import exact

from .single_rank import SingleRankGroup
from .transport import Transport, TransportGroup

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

# Seconds to wait for the other ranks to leave. A rank that finished its last collective may hold
# data that other ranks still have to request, and its departure ends the job for them.
FAREWELL: Final = 30.0

Connect = Callable[["Store", int, int, timedelta], Transport]  # store, rank, size, timeout
End = Callable[[bool], None]  # of a group; True: the last group waits for the other ranks


@dataclass(frozen=True, slots=True)
class GroupMember:
    """This process's place in a new process group."""

    store: "Store"  # of the group
    name: str  # of the group, the same on all members
    ranks: tuple[int, ...]  # global, in the group's order
    rank: int  # in the group
    timeout: timedelta
    whole: bool  # whether the group is that of the whole job


@dataclass(slots=True)
class TransportLease:
    """A transport shared by groups."""

    transport: Transport
    ranks: tuple[int, ...]  # global; position = rank in the transport
    whole: bool
    open: int = 0  # number of open groups

    def serves(self, member: GroupMember) -> bool:
        """Whether all members of a group choose this lease, independent of their other groups."""
        return self.whole or self.ranks == member.ranks

    def group(self, member: GroupMember) -> TransportGroup:
        """A new group; all its members make it in the same order."""
        positions = [self.ranks.index(rank) for rank in member.ranks]
        timeout = member.timeout.total_seconds()
        return self.transport.group(positions, member.name, timeout=timeout)


class Sessions:
    """The transports of this process.

    The job's own group opens one that all its groups share. If that group has another backend,
    groups of the same ranks in the same order share one.
    """

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._leases: list[TransportLease] = []
        os.register_at_fork(after_in_child=self._leases.clear)  # they belong to the parent

    def open(self, member: GroupMember) -> tuple[TransportGroup, End]:
        """A group, and the function that ends it. Connects if needed.

        Raises: the errors of connecting.
        """
        if len(member.ranks) == 1:
            return SingleRankGroup(), lambda politely: None
        lease = next((lease for lease in self._leases if lease.serves(member)), None)
        lease = lease or self._connected(member)
        lease.open += 1
        try:
            group = lease.group(member)
        except BaseException:
            self._release(lease)
            raise
        return group, partial(self._end, lease, group)

    def _connected(self, member: GroupMember) -> TransportLease:
        transport = self._connect(member.store, member.rank, len(member.ranks), member.timeout)
        lease = TransportLease(transport, member.ranks, member.whole)
        self._leases.append(lease)
        return lease

    def _end(self, lease: TransportLease, group: TransportGroup, politely: bool) -> None:
        if politely and lease.open == 1 and group.size == len(lease.ranks):
            _farewell(group)
        with suppress(DlcpError):  # the session has already ended
            group.close()
        self._release(lease)

    def _release(self, lease: TransportLease) -> None:
        lease.open -= 1
        if not lease.open:
            if lease in self._leases:
                self._leases.remove(lease)
            lease.transport.close()


def _farewell(group: TransportGroup) -> None:
    """Wait until all ranks are about to leave, FAREWELL passes, or a rank is lost."""
    with suppress(DlcpError):
        group.barrier(policy=exact(deadline=FAREWELL)).wait()
