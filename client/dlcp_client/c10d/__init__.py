"""The c10d backend: `import dlcp_client`, then `dist.init_process_group("dlcp")`."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from torch._C._distributed_c10d import PrefixStore

from dlcp_client import backend
from dlcp_client.backend import NAME
from dlcp_client.joining.torch_ranks import connect

from . import functional  # noqa: F401  # registers kernels
from .device_backends import ALL_DEVICES, DeviceBackends, devices_of
from .errors import torch_errors
from .process_group import ProcessGroup
from .sessions import Connect, GroupMember, Sessions
from .standalone import process_group
from .transport import Transport

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

__all__ = ["NAME", "ProcessGroup", "creator", "process_group", "register"]


def connect_session(store: "Store", rank: int, size: int, timeout: timedelta) -> Transport:
    """A session of the job: its daemon is found as `dlcp_client.connect` finds it."""
    session = connect(store, rank, size, job=NAME, timeout=timeout.total_seconds())
    return cast("Transport", session)


def register(connect: Connect = connect_session) -> None:
    """Make "dlcp" a backend of torch.distributed, over the transports that `connect` yields."""
    backend.register(creator(connect))


def creator(connect: Connect = connect_session) -> Callable[[Any, Any], ProcessGroup]:
    """The function that makes a group from torch.distributed's description and backend options."""
    sessions = Sessions(connect)

    def opened(
        member: GroupMember, devices: Callable[[], DeviceBackends] = lambda: ALL_DEVICES
    ) -> ProcessGroup:
        def split(name: str, ranks: list[int], timeout: timedelta) -> ProcessGroup:
            store = PrefixStore(f"{name}/", member.store)
            chosen = tuple(member.ranks[rank] for rank in ranks)
            rank = ranks.index(member.rank)
            return opened(GroupMember(store, name, chosen, rank, timeout, whole=False))

        # First the session: where no daemon answers, no rank has begun to connect the others.
        group, end = sessions.open(member)
        try:
            made = devices()
        except BaseException:
            end(False)
            raise
        return ProcessGroup(member.store, group, member.timeout, split=split, end=end, devices=made)

    def create(asked: Any, options: Any) -> ProcessGroup:
        ranks = asked.global_ranks_in_group
        with torch_errors():
            return opened(
                GroupMember(
                    store=asked.store,
                    name=asked.group_id,
                    ranks=tuple(ranks or range(asked.group_size)),
                    rank=asked.group_rank,
                    timeout=asked.timeout,
                    whole=not ranks,  # PyTorch names no ranks for the job's own group
                ),
                partial(devices_of, asked, options),
            )

    return create
