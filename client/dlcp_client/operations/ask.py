"""One operation as requested: the collective, its arrays and its options."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Generic

from dlcp_client.arena.blocks import A, Block, Library
from dlcp_client.operations.requests import Request
from dlcpd.contract.collectives import COLLECTIVES
from dlcpd.contract.messages import Counts, Submit

ANY: Final = -1  # source of a message that may come from any rank

# Bytes of each operation on a tensor that is cut into several: the daemon's default chunk. Smaller
# ones cost more than their overlap gains.
PIECE: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Call:
    """One collective and its parameters, without arrays and terms."""

    collective: str
    peer: int = ANY  # rank in the group: root, receiver or sender
    tag: int = 0
    sizes: Sequence[Counts] = ()  # by rank, if they differ
    schedule: str = ""  # empty: the daemon chooses
    reads: bool = True  # whether the input's values are read


@dataclass(frozen=True, slots=True)
class Ask(Generic[A]):
    """One operation of a group."""

    group: int  # number of the group
    call: Call
    output: Block[A]  # the same object as `input` for an in-place operation
    input: Block[A]
    terms: Request
    result_only: bool

    @property
    def label(self) -> str:
        """Description for errors."""
        terms = self.terms
        return f"{self.call.collective} of {terms.count} {terms.dtype} {terms.name}".rstrip()

    @property
    def bounded_as(self) -> str:
        """The operation's name if it is bounded; else ""."""
        return self.terms.name if self.terms.policy.mode == "bounded" else ""

    def cut(self, library: Library[A]) -> "list[Ask[A]]":
        """Cut the operation at multiples of PIECE, if possible. No part is smaller than PIECE,
        because the schedule of a small one may add in another order. All ranks cut alike."""
        size = self.input.itemsize
        pieces = self.input.nbytes // PIECE
        if pieces < 2 or not COLLECTIVES[self.call.collective].divisible:
            return [self]
        step = PIECE // size
        starts = [*range(0, step * pieces, step), self.input.count]
        cut = []
        for number, (start, stop) in enumerate(pairwise(starts)):
            given = library.part(self.input, start, stop)
            same = self.output is self.input
            out = given if same else library.part(self.output, start, stop)
            terms = self.terms.part(start, stop, size, number)
            cut.append(Ask(self.group, self.call, out, given, terms, self.result_only))
        return cut

    def message(self, source: int, target: int) -> Submit:
        """The Submit message without number, engines and time. Arguments: arena offsets."""
        call = self.call
        return Submit(
            operation=0,
            group=self.group,
            collective=call.collective,
            schedule=call.schedule,
            peer=call.peer,
            tag=call.tag,
            sizes=list(call.sizes),
            input=source,
            input_count=self.input.count,
            output=target,
            output_count=self.output.count,
            in_place=False,
            submitted=0.0,
            **self.terms.fields(),
        )
