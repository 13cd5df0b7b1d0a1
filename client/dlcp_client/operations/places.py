"""Where in the arena the arrays of an operation are, and waiting until there is room for them."""

import gc
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dlcp_client.arena.blocks import A, Block
from dlcp_client.arena.memory import Region, SharedArena, copy_bytes
from dlcp_client.device.seam import Event
from dlcp_client.device.staging import Staging
from dlcp_client.ipc.lanes import Lanes
from dlcp_client.operations.ask import Ask
from dlcp_client.operations.open_operations import Operations
from dlcp_client.operations.work import Work
from dlcpd.contract.collectives import COLLECTIVES, Shape
from dlcpd.contract.errors import ArenaFull

if TYPE_CHECKING:
    from dlcp_client.torch.ranges import Ranges

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Placed:
    """An array as the engine sees it."""

    offset: int  # bytes, in the arena
    memory: Any  # the array, or the Region, that holds it
    region: Region | None = None  # the copy that the engine works on
    direct: bool = False  # the engine works on the caller's own memory
    ready: Event | None = None  # when that copy is made; None: it is


@dataclass(slots=True)
class Plan(Generic[A]):
    """An operation that is to be submitted, and where its arrays are once that is known."""

    ask: Ask[A]
    work: Work[A]
    until: float  # monotonic; of its policy
    after: Event | None = None  # when its device is through with what was asked before it
    source: Placed | None = None
    target: Placed | None = None

    @property
    def placed(self) -> bool:
        """Whether it has all the room that it needs."""
        return self.source is not None and self.target is not None


class Places:
    """Of one session."""

    def __init__(
        self,
        arena: SharedArena,
        staging: Staging,
        table: Operations,
        lanes: Lanes,
        ranges: "Ranges | None",
    ) -> None:
        self._arena, self._staging, self._table, self._lanes = arena, staging, table, lanes
        self._ranges = ranges

    def find(self, plan: Plan[A], until: float | None) -> None:
        """Say where its arrays are in the arena. Waits for room until then; None: not at all."""
        row = COLLECTIVES[plan.ask.call.collective]
        call, output, input = plan.ask.call, plan.ask.output, plan.ask.input
        apart = not row.by_range
        stage = row.shape is Shape.SENT or (apart and output.overlaps(input))
        place = partial(self._place, after=plan.after, until=until)
        if apart or output is not input:
            plan.target = place(output, stage=False, fill=False)
        # Last, for it begins to copy, and nothing may fail any more that would give its room away.
        plan.source = place(input, stage=stage, fill=call.reads)
        plan.target = plan.target or plan.source

    def _place(
        self, block: Block[A], *, after: Event | None, until: float | None, stage: bool, fill: bool
    ) -> Placed:
        """An array as the engine sees it: where it is in the arena, unless it is to be staged;
        else a region for it, filled with its bytes where they matter."""
        device = block.device
        if not block.count:
            return Placed(0, block.array)
        if device is None and self._arena.can_reduce(block.address) and not stage:
            return Placed(self._arena.offset_of(block.address), block.array, direct=True)
        allocate = partial(self._arena.region, block.nbytes)
        region = allocate() if until is None else self.room(allocate, until)
        if device is None:
            if fill:
                copy_bytes(region.address, block.address, block.nbytes)
            return Placed(region.offset, region, region)
        if not self._staging.locked(region, device) and until is None:
            raise ArenaFull("the copy would keep this thread waiting")
        ready = self._staging.fetch(block, region, after) if fill and after else None
        return Placed(region.offset, region, region, ready=ready)

    def room(self, allocate: Callable[[], T], deadline: float) -> T:
        """What `allocate` yields; waits for operations in flight when there is no room.

        Raises: ArenaFull; what ended the session.
        """
        while True:
            seen = self._table.releases
            try:
                return allocate()
            except ArenaFull:
                self._lanes.pump()
                if self._released_since(seen) or self._table.copy_out():
                    continue  # memory came free: of a release, or of results nobody fetched yet
                if self._staging.give_room():
                    continue
                if not self._table.held or time.monotonic() >= deadline:
                    break
            self.wait_for(partial(self._released_since, seen), deadline)
        gc.collect()  # tensors in reference cycles; last, for it takes a trainer 0.1 s and more
        return allocate()

    def _released_since(self, seen: int) -> bool:
        return self._table.releases != seen

    def wait_for(self, done: Callable[[], bool], deadline: float) -> None:
        """Wait until `done()` or `deadline`, whichever is first.

        Raises: what ended the session.
        """
        table = self._table
        with self._ranges.waiting_for_room() if self._ranges else nullcontext():
            self._lanes.wait_until(lambda: table.error is not None or done(), deadline)
        table.raise_if_over()
