"""A process group with its own session, for managers that create one per quorum."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, cast
from weakref import finalize

from torch._C._distributed_c10d import PrefixStore

from dlcp_client.backend import NAME
from dlcp_client.joining.torch_ranks import connect

from .errors import torch_errors
from .process_group import ProcessGroup
from .single_rank import SingleRankGroup
from .transport import Transport, TransportGroup

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store


def process_group(store: "Store", rank: int, world_size: int, timeout: timedelta) -> ProcessGroup:
    """A group of the ranks that meet in `store`, which no other group uses. `timeout`: of joining,
    and of every operation. `abort()` or `shutdown()` ends the group and its session. So does the
    loss of the last reference to it, its splits and their works, as with PyTorch's own groups.

    Raises: the errors of `connect`, as errors of torch.distributed.
    """
    if world_size == 1:
        return _SharedSession().whole(store, SingleRankGroup(), timeout)
    with torch_errors():
        session = connect(store, rank, world_size, job=NAME, timeout=timeout.total_seconds())
    transport = cast("Transport", session)
    return _SharedSession(transport).whole(store, cast("TransportGroup", session.world), timeout)


class _SharedSession:
    """The session that a group and its splits keep open."""

    def __init__(self, transport: Transport | None = None) -> None:
        """None: one rank, without a session."""
        self._transport = transport
        if transport is not None:
            # On a thread: the last reference may be dropped on a thread of the session.
            finalize(self, Thread(target=transport.close, daemon=True).start).atexit = False

    def whole(self, store: "Store", group: TransportGroup, timeout: timedelta) -> ProcessGroup:
        """The group that ends the session when it ends."""
        return self._over(store, group, timeout, self._close)

    def _split(
        self, store: "Store", name: str, ranks: list[int], timeout: timedelta
    ) -> ProcessGroup:
        part: TransportGroup = SingleRankGroup()
        if self._transport is not None and len(ranks) > 1:
            part = self._transport.group(ranks, name, timeout=timeout.total_seconds())
        return self._over(PrefixStore(f"{name}/", store), part, timeout, part.close)

    def _over(
        self, store: "Store", group: TransportGroup, timeout: timedelta, close: Callable[[], None]
    ) -> ProcessGroup:
        return ProcessGroup(
            store, group, timeout, split=partial(self._split, store), end=lambda _: close()
        )

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()
