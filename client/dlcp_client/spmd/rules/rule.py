"""What a rule says: each dimension of each operand and result as factors.

`mm` is (i, k), (k, j) -> (i, j). A factor that mesh axes divide is divided the same way in every
tensor that has it. A factor of operands that a result lacks is summed: where axes divide it, each
rank has a partial sum. A dimension without factors stays whole; a dimension of several factors,
major first, was flattened from them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from dlcp_client.spmd.windows import Window

from .call import Call

Dim: TypeAlias = tuple[str, ...]  # the factors of a dimension, major first
Dims: TypeAlias = tuple[Dim, ...]
ONE: tuple[frozenset[int], ...] = (frozenset({0}),)  # linear in the first operand


class Edit(NamedTuple):
    """An argument of a call on windows: `times` the rows of a shard of the anchor, and `plus`.
    `item`: of a list."""

    argument: int
    item: int | None
    plus: int
    times: int = 0


@dataclass(frozen=True, slots=True)
class Halo:
    """A factor whose dimensions do not match row by row, where mesh axes divide it.

    `reads`: operands of which a rank needs a window; `adds`: results of which a call makes a
    window, that is added to the shards. All others have the anchor's rows. `fill`: rows of a read
    window outside of the dimension; `edits`: arguments of the call on windows.
    """

    window: Window
    reads: frozenset[int] = frozenset()
    adds: frozenset[int] = frozenset()
    fill: float = 0.0
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """The factors of one call.

    `summed`: per result, the factors over which it is a sum.
    `linear`: sets of operands in which the operation is linear together, the others fixed.
    `passes`: dimensions merely pass through; propagation begins with such calls.
    `shapes`: arguments by position that are the shape of a result, by the number of the result.
    `zeroed`: operands whose padding must be zero, because an index out of range is an error.
    `reshapes`: on shards it is a reshape to the shape of the result's shard.
    `halos`: by factor; one axis divides such a factor.
    `is_default`: no rule knows the operation, or these arguments.
    """

    operands: tuple[Dims, ...]
    results: tuple[Dims, ...]
    sizes: Mapping[str, int]
    summed: tuple[frozenset[str], ...]
    linear: tuple[frozenset[int], ...] = ()
    passes: bool = False
    shapes: Mapping[int, int] = field(default_factory=dict)
    zeroed: frozenset[int] = frozenset()
    reshapes: bool = False
    halos: Mapping[str, Halo] = field(default_factory=dict)
    is_default: bool = False

    @property
    def places(self) -> tuple[Dims, ...]:
        """Operands, then results."""
        return self.operands + self.results


# None: the operation has no rule for these arguments.
Rules: TypeAlias = dict[Any, Callable[[Call], Rule | None]]


def rule(
    operands: Sequence[Dims], results: Sequence[Dims], sizes: Mapping[str, int], **more: Any
) -> Rule:
    """A rule whose results are sums over every factor that they lack. `sizes` may have factors that
    no tensor has."""
    given, made = _factors(operands), _factors(results)
    lacking = [given - _factors([dims]) for dims in results]
    sizes = {name: size for name, size in sizes.items() if name in given | made}
    return Rule(tuple(operands), tuple(results), sizes, tuple(map(frozenset, lacking)), **more)


def _factors(several: Sequence[Dims]) -> set[str]:
    return {factor for dims in several for dim in dims for factor in dim}


def named(shape: Sequence[int], letter: str = "d") -> tuple[Dims, dict[str, int]]:
    """A factor for each dimension of more than one row, and the sizes of the factors."""
    dims = tuple((f"{letter}{dim}",) if size > 1 else () for dim, size in enumerate(shape))
    return dims, {dim[0]: size for dim, size in zip(dims, shape, strict=True) if dim}


def without(dims: Dims, which: Sequence[int]) -> Dims:
    """The same, but those dimensions stay whole."""
    return tuple(() if at in which else dim for at, dim in enumerate(dims))


def dropped(dims: Dims, which: Sequence[int]) -> Dims:
    """The same without those dimensions."""
    return tuple(dim for at, dim in enumerate(dims) if at not in which)
