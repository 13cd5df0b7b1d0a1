"""One operation on its way to an engine: its message, its arrays and their places."""

from itertools import pairwise
from typing import Any, Final, Generic, cast

from msgspec import Struct
from msgspec.structs import replace

from dlcp_client.arena.blocks import A, Block, Library
from dlcp_client.arena.memory import Region
from dlcp_client.device.seam import Event
from dlcp_client.operations.requests import part
from dlcp_client.operations.results import Deliver, OwnPart, copy_result
from dlcp_client.operations.work import Work
from dlcpd.contract.collectives import COLLECTIVES
from dlcpd.contract.messages import Submit

# Bytes of each operation on a tensor that is cut into several: the daemon's default chunk. Smaller
# ones cost more than their overlap gains.
PIECE: Final = 4 << 20


class Placed(Struct, frozen=True, eq=False):
    """An array as the engine sees it."""

    offset: int  # bytes, in the arena
    memory: Any  # array or Region that holds the memory
    region: Region | None = None  # the copy that the engine works on
    direct: bool = False  # the engine works on the caller's own memory
    deliver: Deliver = copy_result  # from the region to the caller's array, on this host
    ready: Event | None = None  # end of the copy to the region; None: it has ended


class Operation(Struct, Generic[A], eq=False):
    """One operation of a group. `work`, `source` and `target` are set before it is sent."""

    message: Submit  # number, engines, places and time are set when it is sent; counts before
    output: Block[A]  # the same object as `input` for an in-place operation
    input: Block[A]
    result_only: bool = False
    reads: bool = True  # whether the input's values are read
    writes: bool = True  # whether the output's values change
    own: int = -1  # first element of this rank's part in the array of all parts; -1: there is none
    added: OwnPart[A] | None = None  # the part, if this client may add it
    after: Event | None = None  # end of earlier work on the device
    work: Work[A] = cast("Any", None)
    source: Placed | None = None
    target: Placed | None = None

    @property
    def label(self) -> str:
        """Description for errors."""
        message = self.message
        count = message.input_count or message.output_count
        return f"{message.collective} of {count} {message.dtype} {message.name}".rstrip()

    @property
    def placed(self) -> bool:
        """Whether both arrays have a place."""
        return self.source is not None and self.target is not None

    def cut(self, library: Library[A]) -> "list[Operation[A]]":
        """Cut the operation at multiples of PIECE, if possible. No part is smaller than PIECE,
        because the schedule of a small one may add in another order. All ranks cut alike."""
        size = self.input.itemsize
        pieces = self.input.nbytes // PIECE
        if pieces < 2 or not COLLECTIVES[self.message.collective].divisible:
            return [self]
        step = PIECE // size
        starts = [*range(0, step * pieces, step), self.input.count]
        cut = []
        for number, (start, stop) in enumerate(pairwise(starts)):
            given = library.part(self.input, start, stop)
            same = self.output is self.input
            out = given if same else library.part(self.output, start, stop)
            message = part(self.message, start * size, stop * size, number)
            message.input_count, message.output_count = given.count, out.count
            cut.append(replace(self, message=message, output=out, input=given))
        return cut
