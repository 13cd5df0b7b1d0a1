"""How the result of an operation gets from a region of the arena to the caller's array."""

from collections.abc import Callable
from ctypes import c_char
from typing import Any, Final, Generic, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from dlcp_client.arena.blocks import A, Block, Library
from dlcp_client.arena.memory import Region, copy_bytes
from dlcpd.contract.errors import BadTensor
from dlcpd.contract.messages import Submit

# Copies or computes the result, all of the region, to an array of this host with the same size.
# Raises: BadTensor.
Deliver = Callable[[Block[Any], Region], None]

LEAST_ADDED: Final = 64 << 10  # bytes of a part; of a smaller one, a copy costs less than the calls
BLOCK: Final = 64 << 10  # elements of a temporary, which stays in a core's second-level cache
_TYPES: Final = {"float32": np.float32, "float64": np.float64}
# Averages of others overflow, or round, in ways that only the engine knows.
_ADDED: Final = {("float32", "sum"), ("float64", "sum"), ("float32", "avg")}


def copy_result(target: Block[Any], region: Region) -> None:
    """Copy all of the result."""
    at = region.address
    for part in target.parts or (target,):
        size = part.count * part.itemsize
        copy_bytes(part.address, at, size)
        at += size


class KeptPart(NamedTuple):
    """Bytes [start, stop) of a result, which lie at `address` already."""

    address: int
    start: int
    stop: int

    def deliver(self, target: Block[Any], region: Region) -> None:
        """Copy the other bytes; all of them if `target` has other memory by now."""
        if self.address != target.address + self.start:
            copy_result(target, region)
            return
        copy_bytes(target.address, region.address, self.start)
        rest = len(region) - self.stop
        copy_bytes(target.address + self.stop, region.address + self.stop, rest)


class OwnPart(Struct, Generic[A], frozen=True, eq=False):
    """This rank's part of a reduction of two ranks, which the client adds: it is not copied to the
    arena. The result equals that of an engine to the bit."""

    part: Block[A]  # keeps the memory
    library: Library[A]
    first: bool  # whether this rank's values are the first operand
    average: bool

    def deliver(self, target: Block[Any], region: Region) -> None:
        """Add the other rank's values, which are in the region."""
        part = self.part
        now = self.library.block(part.array)
        if (now.address, now.count) != (part.address, part.count):
            raise BadTensor(
                f"the input of a reduction has lost its memory of {part.nbytes} B; leave it alone "
                f"until the operation is done"
            )
        kind = _TYPES[part.dtype]
        mine, out = (_memory(one).view(kind) for one in (part, target))
        theirs = np.frombuffer(region.memory, kind)
        one, other = (mine, theirs) if self.first else (theirs, mine)
        with np.errstate(all="ignore"):
            if self.average:
                _average(one, other, out)
            else:
                np.add(one, other, out=out)


def own_part(
    library: Library[A],
    message: Submit,
    target: Block[A],
    given: Block[A],
    start: int,
    *,
    first: bool,
) -> OwnPart[A] | None:
    """This rank's part of `given`, from element `start` on, if a client may add it to the other
    rank's in a reduction of two ranks; else None."""
    exact = not (message.max_loss or message.codec or message.name)
    plain = given.device is None and not (given.parts or target.parts)
    known = (given.dtype, message.reduce) in _ADDED and message.schedule in ("", "direct")
    large = target.nbytes >= LEAST_ADDED and start + target.count <= given.count
    if not (exact and plain and known and large):
        return None
    part = library.part(given, start, start + target.count)
    if target.address != part.address and target.overlaps(part):
        return None  # a block of the result would replace values that are not added yet
    return OwnPart(part, library, first, message.reduce == "avg")


def _memory(block: Block[Any]) -> NDArray[np.uint8]:
    memory = (c_char * block.nbytes).from_address(block.address)
    return np.frombuffer(memoryview(memory), np.uint8)


def _average(one: NDArray[Any], other: NDArray[Any], out: NDArray[Any]) -> None:
    """Halve the sums. Where a sum overflows, add in float64, which halves it without a loss."""
    room = np.empty(min(BLOCK, len(out)), out.dtype)
    for start in range(0, len(out), BLOCK):
        block = slice(start, start + BLOCK)
        here = out[block]
        try:
            with np.errstate(over="raise"):
                total = np.add(one[block], other[block], out=room[: len(here)])
                np.multiply(total, 0.5, out=here)
        except FloatingPointError:
            here[:] = (one[block].astype(np.float64) + other[block]) * 0.5
