"""One operation as its caller asks for it: which collective, of what, and how."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Generic

from dlcp_client.arena.blocks import A, Block, Library
from dlcp_client.operations.requests import Request
from dlcpd.contract.collectives import COLLECTIVES
from dlcpd.contract.messages import Counts, Submit

ANY: Final = -1  # source of a message that may come from every rank

# Bytes of an operation that is one of several of one tensor: a chunk of the daemon's default.
# With fewer, operations cost more than their overlap gains.
PIECE: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Call:
    """One collective, beside what is reduced and how: who, and in which parts."""

    collective: str
    peer: int = ANY  # rank in the group: root, receiver or sender
    tag: int = 0
    sizes: Sequence[Counts] = ()  # by rank, where they differ
    schedule: str = ""  # empty: the daemon chooses
    reads: bool = True  # whether what the input holds matters


@dataclass(frozen=True, slots=True)
class Ask(Generic[A]):
    """One operation of a group."""

    group: int  # by number
    call: Call
    output: Block[A]  # the same object as `input` where it works in place
    input: Block[A]
    terms: Request
    result_only: bool

    @property
    def label(self) -> str:
        """For errors."""
        terms = self.terms
        return f"{self.call.collective} of {terms.count} {terms.dtype} {terms.name}".rstrip()

    @property
    def bounded_as(self) -> str:
        """Its name, if it may lose something."""
        return self.terms.name if self.terms.policy.mode == "bounded" else ""

    def cut(self, library: Library[A]) -> "list[Ask[A]]":
        """The same as several, at multiples of PIECE, if it can be; none is smaller than PIECE,
        for the schedule of a small one may add in another order. All ranks come to the same."""
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
        """As the engine is told, but for its number, engines and time; where its arrays lie."""
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
