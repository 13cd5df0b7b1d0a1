"""A process group with a session of its own: for managers that make one for each quorum."""

from datetime import timedelta
from typing import TYPE_CHECKING, cast

from torch._C._distributed_c10d import PrefixStore

from dlcp_client.backend import NAME
from dlcp_client.torch.joining import connect

from .errors import torch_errors
from .process_group import ProcessGroup
from .solo import Solo
from .transport import Group, Transport

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store


def process_group(
    store: "Store", rank: int, world_size: int, timeout: timedelta
) -> ProcessGroup:  # fmt: skip
    """The ranks that meet in `store`, which no other group uses. `timeout`: of the meeting, and of
    every operation. `abort()` or `shutdown()` ends the group and its session.

    Raises: what `connect` raises, as errors of torch.distributed.
    """
    if world_size == 1:
        return _group(store, Solo(), timeout, None)
    with torch_errors():
        session = connect(store, rank, world_size, job=NAME, timeout=timeout.total_seconds())
    transport = cast("Transport", session)
    return _group(store, cast("Group", session.world), timeout, transport)


def _group(
    store: "Store", group: Group, timeout: timedelta, transport: Transport | None
) -> ProcessGroup:
    def split(name: str, ranks: list[int], limit: timedelta) -> ProcessGroup:
        part = (
            Solo() if transport is None or len(ranks) == 1
            else transport.group(ranks, name, timeout=limit.total_seconds())
        )  # fmt: skip
        return ProcessGroup(
            PrefixStore(f"{name}/", store), part, limit, split=split, end=lambda _: part.close()
        )

    def end(_politely: bool) -> None:
        if transport is not None:
            transport.close()

    return ProcessGroup(store, group, timeout, split=split, end=end)
