"""Messages between neighbouring stages of a pipeline: a description, then rows in pieces."""

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from dlcp_client.fused.model_parallel.layers import DTYPES
from dlcp_client.group import Group
from dlcp_client.operations.work import Work
from dlcp_client.products import InPieces, cuts
from dlcpd.contract.errors import BadOperation

MOST_DIMENSIONS: Final = 8
MOST_PIECES: Final = 1 << 10  # each is an operation
MOST_ELEMENTS: Final = 1 << 40  # of a part
# Tags from here on are those of messages between stages, by their number; they have 32 bits.
_FIRST_TAG: Final = 1 << 31
# Messages so far, by the other stage
_numbers: Final[WeakKeyDictionary[Group[Tensor], Counter[int]]] = WeakKeyDictionary()

Pieces = Sequence[tuple[slice, Work[Tensor]]]  # rows, and the operation that brings them


class Description(NamedTuple):
    """What a stage sends: the part of one rank."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    pieces: int

    @classmethod
    def of(cls, x: Tensor, pieces: int) -> "Description":
        """`pieces`: 0: by size."""
        return cls(x.dtype, tuple(x.shape), len(cuts(x, min(pieces, MOST_PIECES))))

    def encoded(self) -> Tensor:
        """int64: dtype, pieces, number of dimensions, and these."""
        room = [0] * (MOST_DIMENSIONS - len(self.shape))
        numbers = [DTYPES.index(self.dtype), self.pieces, len(self.shape), *self.shape, *room]
        return torch.tensor(numbers, dtype=torch.int64)

    @classmethod
    def decoded(cls, encoded: Tensor) -> "Description":
        """Raises: BadOperation: no stage sends such a message."""
        dtype, pieces, dimensions, *room = encoded.tolist()
        shape = room[:dimensions] if 0 < dimensions <= MOST_DIMENSIONS else [-1]
        known = 0 <= dtype < len(DTYPES) and 0 < pieces <= MOST_PIECES
        if not known or min(shape) < 0 or prod(shape) > MOST_ELEMENTS:
            raise BadOperation("receive: the previous stage sent something else than `send_next`")
        return cls(DTYPES[dtype], tuple(shape), pieces)

    def empty(self) -> Tensor:
        """Memory for it."""
        return torch.empty(self.shape, dtype=self.dtype)


class Message:
    """One message to the next stage, or from the previous one; its gradient takes the way back.

    The n-th `send_next` of a stage and the n-th `receive` of the next one have the same number, and
    their tensors a tag of their own: backward passes may have another order than forward passes.
    """

    def __init__(self, stages: Group[Tensor], peer: int) -> None:
        """`peer`: the stage at the other end."""
        self._stages, self._peer = stages, peer
        numbers = _numbers.setdefault(stages, Counter())
        self._tag = _FIRST_TAG + numbers[peer] % _FIRST_TAG
        numbers[peer] += 1
        self.description: Description

    def announce(self, description: Description) -> None:
        """Send the description."""
        self.description = description
        self._stages.send(description.encoded(), self._peer, self._tag)

    def await_description(self) -> None:
        """Raises: BadOperation, or the error that ended the operation."""
        encoded = torch.empty(3 + MOST_DIMENSIONS, dtype=torch.int64)
        self._stages.receive(encoded, self._peer, self._tag).wait()
        self.description = Description.decoded(encoded)

    def send(self, x: Tensor) -> None:
        """Send rows or their gradients. Raises: ArenaFull, or the error that ended an operation."""
        x = x.contiguous()
        rows = cuts(x, self.description.pieces)
        for work in [self._stages.send(x[some], self._peer, self._tag) for some in rows]:
            work.wait()

    def receive(self, into: Tensor) -> Pieces:
        """Begin to receive rows or their gradients. Raises: ArenaFull, or the error that ended an
        operation."""
        rows = cuts(into, self.description.pieces)
        return [(some, self._stages.receive(into[some], self._peer, self._tag)) for some in rows]


class GatheredMessage(InPieces):
    """The parts of a message to a stage, on every rank of it. A piece is gathered while later ones
    come from the previous stage."""

    def __init__(self, group: Group[Tensor], part: Tensor, pieces: Pieces) -> None:
        """`part`: of this rank, which `pieces` fill. Raises: ArenaFull, or the error that ended an
        operation."""
        super().__init__(group)
        self._whole = part.new_empty((group.size, *part.shape))
        for rows, received in pieces:
            received.wait()
            self._gather(rows, part[rows])

    def _gather(self, rows: slice, part: Tensor) -> None:
        """A method: a loop's names would keep the memory of one piece while the next needs some."""
        group = self.group
        parts = self.empty((group.size, *part.shape), part.dtype)
        mine = parts[group.rank].copy_(part)
        self.begun(rows, parts, group.all_gather(parts.view(-1), mine.view(-1)))

    def result(self) -> Tensor:
        """[rows of all ranks, ...]. Raises: the error that ended an operation."""
        self.end_all()
        return self._whole.flatten(0, 1)

    def used(self, rows: slice, memory: Tensor) -> None:
        self._whole[:, rows] = memory
