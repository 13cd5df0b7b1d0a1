"""The process group that PyTorch sees: names, point-to-point operations, barriers, shutdown."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist

from dlcp_client.backend import NAME
from dlcp_client.joining.sessions import checked_timeout
from dlcp_client.meeting import await_ranks
from dlcpd.contract.errors import BadOperation, SessionClosed
from dlcpd.contract.policy import LossPolicy, exact

from . import transport
from .checks import check_message
from .collectives import Collectives, Tensors
from .device_backends import ALL_DEVICES, DeviceBackends
from .errors import torch_errors
from .group_calls import operation
from .overloads import CallOptions
from .per_device import PerDevice
from .sessions import End
from .staging import BYTES, lent, room
from .unread import UnreadWorks
from .work import GroupWork, joined

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

Split = Callable[[str, list[int], timedelta], "ProcessGroup"]


class ProcessGroup(Collectives, PerDevice):
    """A c10d process group over a group of the transport.

    Thread-safe as the transport is. After `shutdown` or `abort` every call raises SessionClosed.
    """

    def __init__(
        self,
        store: "Store",
        group: transport.TransportGroup,
        timeout: timedelta,
        *,
        split: Split,
        end: End,
        devices: DeviceBackends = ALL_DEVICES,
    ) -> None:
        """`split` makes a group of some of these ranks; `end` is called once, last. `devices`: the
        devices and their backends."""
        # The constructor with a store makes no object that Python methods can override.
        dist.ProcessGroup.__init__(self, group.rank, group.size)  # type: ignore[call-arg]
        self.group, self._store = group, store
        self._serve(devices)
        self._split, self._end = split, end
        self.set_timeout(timeout)
        self._open, self._splits = True, 0
        self._coalesced: list[GroupWork] | None = None
        self.unread = UnreadWorks()
        self._name, self._description = "", ""

    # --- names and ranks, also read by C++ --------------------------------------------

    def getBackendName(self) -> str:  # C++ names, here and below
        return NAME

    def getRank(self) -> int:
        return self.group.rank

    def getSize(self) -> int:
        return self.group.size

    def getGroupName(self) -> str:
        return self._name

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupDesc(self) -> str:
        return self._description

    def get_group_store(self) -> "Store":
        return self._store

    def setGroupDesc(self, description: str) -> None:
        self._description = description

    # --- operations -------------------------------------------------------------------

    def policy(self, asked: CallOptions) -> LossPolicy:
        return self._policy if asked.timeout is None else exact(deadline=asked.timeout)

    def begin(self) -> None:
        if not self._open:
            raise SessionClosed(f"process group {self._name!r} was destroyed: create a new group")

    def begun(self, work: GroupWork, *, message: bool) -> None:
        work.group = self
        if not message:  # another rank may match it after any number of other operations
            self.unread.add(work)
        if self._coalesced is not None:
            self._coalesced.append(work)

    @operation
    def send(self, tensors: Tensors, peer: int, tag: int, asked: CallOptions) -> GroupWork:
        check_message(peer, tag, self.group.size)
        buffer = lent(tensors, BYTES)
        return GroupWork([self.group.send(buffer.whole, peer, tag, policy=self.policy(asked))], [])

    @operation
    def recv(self, tensors: Tensors, peer: int, tag: int, asked: CallOptions) -> GroupWork:
        check_message(peer, tag, self.group.size)
        return _received(self.group, tensors, peer, tag, self.policy(asked))

    @operation
    def recv_anysource(self, tensors: Tensors, tag: int, asked: CallOptions) -> GroupWork:
        return _received(self.group, tensors, None, tag, self.policy(asked))

    @operation
    def barrier(self, asked: CallOptions) -> GroupWork:
        # As with Gloo, it also waits for earlier collectives that no caller waits for.
        before = self.unread.all()
        part = self.group.barrier(policy=self.policy(asked))
        return GroupWork([part], [], lambda: [work.wait() for work in before])

    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """A barrier whose error on rank 0 names the missing ranks.

        dist.monitored_barrier requires Gloo by name, so call this method of the group.
        """
        with torch_errors():
            limit = checked_timeout(self._timeout if timeout is None else timeout)
            await_ranks(
                self.group,
                limit,
                what="monitored barrier",
                tag=transport.USER_TAGS,
                every=wait_all_ranks,
            )

    def _start_coalescing(self, device: torch.device) -> None:
        if (other := self.other(device.type)) is not None:
            other._start_coalescing(device)  # noqa: SLF001  # PyTorch's interface
            return
        self._coalesced = []

    def _end_coalescing(self, device: torch.device) -> GroupWork:
        if (other := self.other(device.type)) is not None:
            return cast("GroupWork", other._end_coalescing(device))  # noqa: SLF001  # as above
        works, self._coalesced = self._coalesced or [], None
        return joined(works)

    # --- life -------------------------------------------------------------------------

    def _default_timeout(self) -> timedelta:
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the timeout of later operations. Raises: BadConfig."""
        with torch_errors():
            checked_timeout(timeout)
        self._timeout, self._policy = timeout, exact(deadline=timeout)

    def split_group(  # noqa: PLR0917  # PyTorch's order
        self,
        new_ranks: list[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Any = None,
    ) -> "ProcessGroup | None":
        """Split off a group of `new_ranks`; None on other ranks. All ranks call it."""
        if self.devices.others is not None:
            with torch_errors():
                raise BadOperation(
                    f"process group {self._name!r} has several backends and cannot be split: "
                    "create a new group"
                )
        self._splits += 1
        if self.group.rank not in new_ranks:
            return None
        name = group_name or f"{self._name}:split:{self._splits}"
        limit = self._timeout if timeout is None else timeout
        made = self._split(name, new_ranks, limit)
        made.setGroupName(name)
        made.setGroupDesc(group_desc or f"{self._description}:split:{self._splits}")
        return made

    def shutdown(self) -> None:
        """End the group; unfinished operations fail. A second call does nothing.

        The job's last group first waits up to FAREWELL for the other ranks to end their groups.
        """
        self._finish(politely=True)

    def abort(self) -> None:
        """As `shutdown`, without waiting for other ranks."""
        self._finish(politely=False)

    def _finish(self, *, politely: bool) -> None:
        if self._open:
            self._open = False
            self.unread.clear()
            self.devices.end(politely=politely)
            self._end(politely)


def _received(
    group: transport.TransportGroup,
    tensors: Tensors,
    peer: int | None,
    tag: int,
    policy: LossPolicy,
) -> GroupWork:
    """Receive a message of `peer`; None: of any rank."""
    buffer = room(tensors, BYTES)
    part = group.receive(buffer.whole, peer, tag, policy=policy)
    return GroupWork([part], tensors, buffer.copy_back)
