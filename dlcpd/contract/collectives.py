"""Table of the collectives: inputs, outputs and root of each.

Client, engine, schedules and tests read this table; `dlcpd.schedules.catalog` says how a collective
is carried out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final


class Shape(Enum):
    """How the inputs and outputs of the ranks depend on each other."""

    ELEMENTS = auto()  # element i of an output on element i of the inputs, and on no other
    INPUTS = auto()  # an output is the inputs of all ranks, one after another
    OUTPUTS = auto()  # an input is the outputs of all ranks, one after another
    PAIRS = auto()  # an input has a part for each rank, an output a part from each
    NOTHING = auto()  # no bytes
    SENT = auto()  # a message to `peer`
    RECEIVED = auto()  # a message from `peer`, or from any rank


class Root(Enum):
    """The rank that an operation names."""

    NONE = auto()
    SOURCE = auto()  # only its input counts
    TARGET = auto()  # only it has an output


@dataclass(frozen=True, slots=True)
class Collective:
    """A row of the table."""

    shape: Shape
    root: Root = Root.NONE
    reduces: bool = False  # combines values: sum, max, ...
    may_lose: bool = False  # carries gradients: a bounded policy and a codec are possible
    # Whether each engine may take a range of the tensor, and input and output may share memory.
    # Otherwise each takes every n-th transfer, and input and output are separate.
    by_range: bool = field(init=False)
    divisible: bool = field(init=False)  # may be split into operations on ranges of the tensor
    message: bool = field(init=False)  # two ranks take part, and the group's others do not
    # Whether `peer` must be a rank. A receiver may take a message of any rank.
    names_a_rank: bool = field(init=False)

    def __post_init__(self) -> None:
        shape, root = self.shape, self.root
        found = {
            "by_range": shape is Shape.ELEMENTS,
            "divisible": shape is Shape.ELEMENTS and root is not Root.TARGET,
            "message": shape in (Shape.SENT, Shape.RECEIVED),
            "names_a_rank": root is not Root.NONE or shape is Shape.SENT,
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)

    def per_rank(
        self, world: int, given: int, wanted: int
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Elements for each rank and from each rank, if all have equally many. The operation has
        `given` elements of input and `wanted` of output on this rank."""
        if self.shape is Shape.INPUTS:
            return (given,) * world, (given,) * world
        if self.shape is Shape.OUTPUTS:
            return (wanted,) * world, (wanted,) * world
        return (given // world,) * world, (wanted // world,) * world

    def needed(  # noqa: PLR0917  # the fields of a request
        self, rank: int, peer: int, given: int, wanted: int, to: Sequence[int], of: Sequence[int]
    ) -> tuple[int, int]:
        """Elements of input and output that `rank` must have. `to`, `of`: elements for each rank
        and from each rank."""
        here = rank == peer
        match self.shape:
            case Shape.ELEMENTS:
                return given, given if here or self.root is not Root.TARGET else 0
            case Shape.INPUTS:
                return of[rank], sum(of) if here or self.root is Root.NONE else 0
            case Shape.OUTPUTS:
                return sum(to) if here or self.root is Root.NONE else 0, to[rank]
            case Shape.PAIRS:
                return sum(to), sum(of)
            case Shape.SENT:
                return given, 0
            case Shape.RECEIVED:
                return 0, wanted
        return 0, 0


@dataclass(frozen=True, slots=True)
class Share:
    """The part of an operation that one engine of a host carries out: part `number`, from 0, of
    `of` parts."""

    number: int = 0
    of: int = 1


WHOLE: Final = Share()
COLLECTIVES: Final[dict[str, Collective]] = {
    "all_reduce": Collective(Shape.ELEMENTS, reduces=True, may_lose=True),
    "reduce": Collective(Shape.ELEMENTS, Root.TARGET, reduces=True),
    "broadcast": Collective(Shape.ELEMENTS, Root.SOURCE),
    "all_gather": Collective(Shape.INPUTS),
    "gather": Collective(Shape.INPUTS, Root.TARGET),
    "scatter": Collective(Shape.OUTPUTS, Root.SOURCE),
    "reduce_scatter": Collective(Shape.OUTPUTS, reduces=True, may_lose=True),
    "all_to_all": Collective(Shape.PAIRS),
    "barrier": Collective(Shape.NOTHING),
    "send": Collective(Shape.SENT),
    "receive": Collective(Shape.RECEIVED),
}
LOSSY: Final = tuple(name for name, row in COLLECTIVES.items() if row.may_lose)
