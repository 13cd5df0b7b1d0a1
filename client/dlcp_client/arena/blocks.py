"""A dense array as the client describes it to the engine, for any array library."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol

from msgspec import Struct

from dlcp_client.arena.memory import SharedArena
from dlcp_client.device.seam import Device

if TYPE_CHECKING:  # without torch, only the type checker needs the default
    import torch
    from typing_extensions import TypeVar

    from dlcp_client.ranges import Ranges

    A = TypeVar("A", default=torch.Tensor)
else:
    from typing import TypeVar

    A = TypeVar("A")


class Block(Struct, Generic[A], frozen=True, eq=False):
    """A dense array: its address, size and dtype."""

    array: A  # keeps the memory
    address: int
    count: int  # of elements
    itemsize: int  # bytes
    dtype: str  # the contract's name
    writable: bool = True
    device: Device | None = None  # where its memory is; None: this host

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.count * self.itemsize

    def overlaps(self, other: "Block[A]") -> bool:
        """Whether the two have bytes in common."""
        first, second = (self, other) if self.address <= other.address else (other, self)
        return bool(second.nbytes) and second.address < first.address + first.nbytes


class Library(Protocol[A]):
    """The functions that a session needs of an array library."""

    @property
    def nothing(self) -> A:
        """An array without elements."""

    @property
    def ranges(self) -> "Ranges | None":
        """Shows operations in the library's profiler; None: the library has none."""

    def block(self, array: Any) -> Block[A]:
        """Describe `array`. Raises: BadTensor, which says what was found and what to do."""

    def part(self, block: Block[A], start: int, stop: int) -> Block[A]:
        """Elements [start, stop) of `block`, in the same memory."""

    def empty(self, arena: SharedArena, shape: Sequence[int], dtype: Any) -> A:
        """A new, uninitialised array in the arena. `dtype` None: float32.

        Raises: ArenaFull, BadTensor; nothing changed.
        """

    def operation(self, op: Any) -> Any:
        """The contract's name of `op`, if the library has its own object for it; else `op`."""
