"""A dense array as the client describes it to the engine, for any array library."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias

from msgspec import Struct

from dlcp_client.arena.memory import SharedArena
from dlcp_client.device.seam import Device
from dlcpd.contract.errors import BadTensor
from dlcpd.contract.messages import MAX_ELEMENTS

if TYPE_CHECKING:  # without torch, only the type checker needs the default
    import torch
    from typing_extensions import TypeVar

    from dlcp_client.ranges import Ranges

    A = TypeVar("A", default=torch.Tensor)
else:
    from typing import TypeVar

    A = TypeVar("A")


# One array, or the values of several arrays of this host, one after another.
Arrays: TypeAlias = A | tuple[A, ...]


class Block(Struct, Generic[A], frozen=True, eq=False):
    """A dense array, or the values of several, one after another: address, size and dtype."""

    array: A  # keeps the memory; of several arrays, their tuple
    address: int
    count: int  # of elements
    itemsize: int  # bytes
    dtype: str  # the contract's name
    writable: bool = True
    device: Device | None = None  # where its memory is; None: this host
    parts: "tuple[Block[A], ...]" = ()  # of several arrays; `address` is then that of none

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.count * self.itemsize

    def overlaps(self, other: "Block[A]") -> bool:
        """Whether the two have bytes in common."""
        if self.parts or other.parts:
            ours, theirs = self.parts or (self,), other.parts or (other,)
            return any(one.overlaps(two) for one in ours for two in theirs)
        first, second = (self, other) if self.address <= other.address else (other, self)
        return bool(second.nbytes) and second.address < first.address + first.nbytes


def chained(blocks: Sequence[Block[Any]]) -> Block[Any]:
    """The values of several dense arrays of this host, one after another.

    Raises: BadTensor if there is none, if dtypes differ, if one is on a device, or if they have too
    many elements.
    """
    if not blocks:
        raise BadTensor("a tuple without tensors: give at least one")
    dtype, count = blocks[0].dtype, sum([block.count for block in blocks])
    for block in blocks:
        if block.dtype != dtype:
            raise BadTensor(f"a tuple of {dtype} and {block.dtype}: use one dtype")
        if block.device is not None:
            raise BadTensor(
                f"a tuple with a tensor on {block.device.name}: concatenate tensors of devices"
            )
    if count > MAX_ELEMENTS:
        raise BadTensor(
            f"tensors of {count} elements together are too large: one operation takes at most "
            f"{MAX_ELEMENTS}; split them"
        )
    return Block(
        tuple(block.array for block in blocks),
        address=0,
        count=count,
        itemsize=blocks[0].itemsize,
        dtype=dtype,
        writable=all(block.writable for block in blocks),
        parts=tuple(blocks),
    )


class Library(Protocol[A]):
    """The functions that a session needs of an array library."""

    @property
    def nothing(self) -> A:
        """An array without elements."""

    @property
    def ranges(self) -> "Ranges | None":
        """Shows operations in the library's profiler; None: the library has none."""

    def block(self, array: Any) -> Block[A]:
        """Describe `array`. A tuple of arrays stands for their values, one after another.

        Raises: BadTensor, which says what was found and what to do.
        """

    def part(self, block: Block[A], start: int, stop: int) -> Block[A]:
        """Elements [start, stop) of `block`, in the same memory."""

    def empty(self, arena: SharedArena, shape: Sequence[int], dtype: Any) -> A:
        """A new, uninitialised array in the arena. `dtype` None: float32.

        Raises: ArenaFull, BadTensor; nothing changed.
        """

    def operation(self, op: Any) -> Any:
        """The contract's name of `op`, if the library has its own object for it; else `op`."""
