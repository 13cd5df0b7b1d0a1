"""Places the arrays of operations in the arena, and waits for free space."""

import gc
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from dlcp_client.arena.blocks import A, Block
from dlcp_client.arena.memory import OFFSET_UNIT, Region, SharedArena, copy_bytes
from dlcp_client.arena.staging import Staging
from dlcp_client.device.seam import Event
from dlcp_client.operations.lanes import Lanes
from dlcp_client.operations.open_operations import Operations
from dlcp_client.operations.operation import Operation, Placed
from dlcp_client.operations.results import Deliver, KeptPart, copy_result
from dlcpd.contract.collectives import COLLECTIVES, Shape
from dlcpd.contract.errors import ArenaFull, BadTensor

if TYPE_CHECKING:
    from dlcp_client.ranges import Ranges

T = TypeVar("T")


class Places:
    """The places of one session."""

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

    def find(self, operation: Operation[A], until: float | None) -> tuple[Placed, Placed]:
        """Place the arrays in the arena. Waits for space until `until`; None: does not wait.

        Returns the places of input and output, which the operation keeps.
        """
        if operation.own >= 0 and until is not None:
            together = self._place_together(operation, until)
            if together is not None:
                operation.source, operation.target = together
                return together
        row = COLLECTIVES[operation.message.collective]
        output, input = operation.output, operation.input
        apart, after = not row.by_range, operation.after
        overlap = apart and output.overlaps(input) and not self._is_own_part(operation)
        stage = row.shape is Shape.SENT or overlap
        target = None
        if apart or output is not input:
            target = self._place(output, after=after, until=until, stage=False, fill=False)
            operation.target = target
        # Last, because it starts a copy: no later failure may free its region.
        source = self._place(input, after=after, until=until, stage=stage, fill=operation.reads)
        operation.source, operation.target = source, target or source
        return source, operation.target

    def _place_together(
        self, operation: Operation[A], until: float
    ) -> tuple[Placed, Placed] | None:
        """Place both arrays in one region, the smaller one as this rank's part of the larger one:
        the engine then copies no part of this rank, and a part that the client adds stays where it
        is. None: one of them is in place, on a device or empty, or the part is not aligned or not
        within the larger one."""
        output, input = operation.output, operation.input
        gathers, large, small = _by_size(operation)
        start, size = operation.own * small.itemsize, small.nbytes
        if start % OFFSET_UNIT or start + size > large.nbytes:
            return None
        if not (self._is_copied(output) and self._is_copied(input)):
            return None
        region = self.room(partial(self._arena.region, large.nbytes), until)
        part = region.part(start, size)
        deliver: Deliver = copy_result
        if gathers:
            _fill(part.address, input)
            if not output.parts and input.address == output.address + start:
                deliver = KeptPart(input.address, start, start + size).deliver
            target = Placed(region.offset, region, region, deliver=deliver)
            return Placed(part.offset, part), target
        if operation.added is None:
            _fill(region.address, input)
        else:
            operation.message.adds, deliver = True, operation.added.deliver
            copy_bytes(region.address, input.address, start)
            stop = start + size
            copy_bytes(region.address + stop, input.address + stop, large.nbytes - stop)
        return Placed(region.offset, region), Placed(part.offset, part, part, deliver=deliver)

    def _is_own_part(self, operation: Operation[A]) -> bool:
        """Whether both arrays lie in the arena, the smaller one as this rank's part of the larger
        one: the engine uses them there, and copies no part of this rank."""
        _, large, small = _by_size(operation)
        at = large.address + operation.own * small.itemsize
        return (
            operation.own >= 0 and small.address == at and self.holds(large) and self.holds(small)
        )

    def holds(self, block: Block[A]) -> bool:
        """Whether an array lies in the arena as a whole."""
        apart = block.device is not None or block.parts
        return not apart and self._arena.offset_of(block.address) >= 0

    def _is_copied(self, block: Block[A]) -> bool:
        return bool(block.count) and block.device is None and not self.holds(block)

    def _place(
        self, block: Block[A], *, after: Event | None, until: float | None, stage: bool, fill: bool
    ) -> Placed:
        """An array as the engine sees it: in place if it lies in the arena and needs no copy; else
        a region, filled with its bytes if they are read."""
        device = block.device
        if not block.count:
            return Placed(0, block.array)
        direct = device is None and not stage and not block.parts
        if direct and (offset := self._arena.offset_of(block.address)) >= 0:
            return Placed(offset, block.array, direct=True)
        size = block.count * block.itemsize
        try:
            region = self._arena.region(size)
        except ArenaFull:
            if until is None:
                raise
            region = self.room(partial(self._arena.region, size), until)
        if device is None:
            if fill and block.parts:
                _fill(region.address, block)
            elif fill:
                copy_bytes(region.address, block.address, size)
            return Placed(region.offset, region, region)
        if not self._staging.locked(region, device) and until is None:
            raise ArenaFull("the copy would keep this thread waiting")
        ready = self._staging.fetch(block, region, after) if fill and after else None
        return Placed(region.offset, region, region, ready=ready)

    def fetch(self, into: Block[A], array: Block[A]) -> Event:
        """Begin to copy an array of a device to one that lies in the arena. Raises: ArenaFull,
        DeviceFailed."""
        region, now = self._locked(into, array)
        return self._staging.fetch(array, region, now)

    def deliver(self, array: Block[A], source: Block[A]) -> Event:
        """The reverse; the current stream waits for it. Raises: likewise."""
        region, now = self._locked(source, array)
        event = self._staging.deliver(array, region, now)
        if array.device is not None:
            array.device.follow(event)
        return event

    def _locked(self, host: Block[A], array: Block[A]) -> tuple[Region, Event]:
        """The memory of an array of the arena, locked if it may be, and the present end of the
        current stream of a device."""
        if not self.holds(host) or array.device is None or host.nbytes != array.nbytes:
            raise BadTensor(
                f"a copy between {array.nbytes} B of a device and {host.nbytes} B of the arena: "
                f"give an array of a device, and one of Session.empty of equal size"
            )
        region = self._arena.around(host.address, host.nbytes)
        self._staging.locked(region, array.device)
        return region, array.device.mark()

    def room(self, allocate: Callable[[], T], deadline: float) -> T:
        """The result of `allocate`. While there is no space, waits for operations in flight.

        Raises: ArenaFull; the error that ended the session.
        """
        while True:
            seen = self._table.memory.releases
            try:
                return allocate()
            except ArenaFull:
                self._lanes.pump()
                if self._released_since(seen) or self._table.copy_out():
                    continue  # a release or uncopied results freed memory
                if self._staging.give_room():
                    continue
                if not len(self._table.memory) or time.monotonic() >= deadline:
                    break
            self.wait_for(partial(self._released_since, seen), deadline)
        gc.collect()  # tensors in reference cycles; last, because it takes a trainer 0.1 s or more
        return allocate()

    def _released_since(self, seen: int) -> bool:
        return self._table.memory.releases != seen

    def wait_for(self, done: Callable[[], bool], deadline: float) -> None:
        """Wait until `done()` or `deadline`.

        Raises: the error that ended the session.
        """
        table = self._table
        with self._ranges.waiting_for_room() if self._ranges else nullcontext():
            self._lanes.wait_until(lambda: table.error is not None or done(), deadline)
        table.raise_if_over()


def _by_size(operation: Operation[A]) -> tuple[bool, Block[A], Block[A]]:
    """Whether the output is the array of all parts, then that array, then this rank's part."""
    output, input = operation.output, operation.input
    gathers = output.nbytes >= input.nbytes
    return (True, output, input) if gathers else (False, input, output)


def _fill(address: int, block: Block[A]) -> None:
    """Copy the values of a block of this host to `address`."""
    for part in block.parts or (block,):
        size = part.count * part.itemsize
        copy_bytes(address, part.address, size)
        address += size
