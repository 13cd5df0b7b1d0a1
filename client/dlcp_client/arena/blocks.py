"""What the client knows of an array, whichever library it is of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol

from dlcp_client.arena.memory import SharedArena
from dlcp_client.device.seam import Device

if TYPE_CHECKING:  # who has no torch gives the type
    import torch
    from typing_extensions import TypeVar

    from dlcp_client.torch.ranges import Ranges

    A = TypeVar("A", default=torch.Tensor)
else:
    from typing import TypeVar

    A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Block(Generic[A]):
    """A dense array, and what the engine is told of it."""

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
    """An array library, as far as a session needs one."""

    @property
    def nothing(self) -> A:
        """An array without elements."""

    @property
    def ranges(self) -> "Ranges | None":
        """What shows operations to the library's profiler; None: it has none."""

    def block(self, array: Any) -> Block[A]:
        """Raises: BadTensor saying what was found and what to do about it."""

    def part(self, block: Block[A], start: int, stop: int) -> Block[A]:
        """Elements [start, stop) of it, in the same memory."""

    def empty(self, arena: SharedArena, shape: Sequence[int], dtype: Any) -> A:
        """A new array in the arena, with whatever its memory held. `dtype` None is float32.

        Raises: ArenaFull, BadTensor; nothing changed.
        """

    def operation(self, op: Any) -> Any:
        """The contract's name of an operation, if the library has its own for it."""
