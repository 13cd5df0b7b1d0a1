"""A fused operation on this rank: one all-reduce of the group whose owners compute."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, fx

from dlcp_client.group import Group
from dlcp_client.operations.work import Work

from .kernels import FlatPiece, FusedRegion, Kernel, OperandKind, kernel_for, region_of
from .layouts import pointwise, shape_of
from .operations import OWN, UPDATE
from .program import FusedProgram

Values = dict[fx.Node, Any]  # of this rank


class FusedOperation:
    """One operation of the group, with its memory and this rank's parts of its state."""

    def __init__(
        self, program: FusedProgram, gather: str, group: Group[Tensor], kernel: str
    ) -> None:
        region = self._region = region_of(program, gather)
        self.kernel: Final[Kernel] = kernel_for(program, region, kernel)
        self._group, self.shape = group, shape_of(region.gather)
        self._op = region.scatter.args[1]
        self._count = region.gather.meta["val"].numel()
        dtype = region.gather.meta["val"].dtype
        self.producer: fx.Node = region.scatter.all_input_nodes[0]
        self.pieces: int = region.gather.meta.get("pieces", ("", 0))[1]
        alone = self.producer.op == "placeholder" and len(self.producer.users) == 1
        self.reduced = self.producer.name if alone else ""  # nothing else reads what sums replace
        self.updated = _updated_in_place(region)
        kept = [one.node for one in region.operands if one.kind is OperandKind.STATE]
        self.states = {node.name: node for node in dict.fromkeys([*kept, *region.states])}
        self._initial: dict[str, Tensor] = {}  # whole and flat, until the next run has ended
        self._parts: dict[tuple[int, int], dict[str, Tensor]] = {}
        # of each piece, since each begins at an aligned address: its sums, and its results
        self._memory = [
            tuple(group.session.empty(self._count // max(self.pieces, 1), dtype) for _ in range(2))
            for _ in range(max(self.pieces, 1))
        ]
        self.sums, self.into = self._memory[0]

    @property
    def state_bytes(self) -> int:
        return sum(x.nbytes for parts in self._parts.values() for x in parts.values())

    def run(self, held: Values, numbers: Mapping[str, Tensor]) -> Tensor:
        """The gathered result, in memory that the next run writes again.

        Raises: the error that ended the operation.
        """
        flat = {
            one.node: held[one.node].expand(self.shape).reshape(-1)
            for one in self._region.operands
            if one.kind is OperandKind.WHOLE
        }
        values = {**held, **flat}
        works: dict[Work[Tensor], Any] = {}
        for piece, (sums, into) in enumerate(self._memory):
            self._fill(held, piece)
            work = self._group.all_reduce_computed(sums, into, self._op)
            works[work] = partial(self._compute, piece, values, numbers)
        self._group.session.compute(works)
        for work in works:
            work.wait()
        self._initial.clear()
        if self.pieces:
            return torch.cat([into for _, into in self._memory]).view(self.shape)
        return self.into.view(self.shape)

    def load(self, name: str, whole: Tensor) -> None:
        """Go on from another value of a state."""
        self._initial[name] = whole.reshape(-1)
        for parts in self._parts.values():
            parts.pop(name, None)

    def whole(self, name: str) -> Tensor:
        """All of a state, from the parts of all ranks."""
        node = self.states[name]
        if name in self._initial:
            return self._initial[name].view(shape_of(node)).clone()
        found = torch.zeros(self._count, dtype=node.meta["val"].dtype)
        for (first, end), parts in self._parts.items():
            found[first:end] = parts[name]
        self._group.all_reduce(found).wait()  # other ranks have 0 there
        return found.view(shape_of(node))

    def _fill(self, held: Values, piece: int) -> None:
        """Put the local values of a piece where the operation reduces them."""
        into = self._memory[piece][0]
        if self.pieces:
            rows = self.shape[0] // self.pieces
            cut = slice(piece * rows, (piece + 1) * rows)
            into.copy_(_rows(self.producer, held, cut, self.shape).reshape(-1))
            return
        given = held[self.producer]
        if given.data_ptr() != into.data_ptr():
            into.copy_(given.reshape(-1))

    def _compute(
        self, piece: int, values: Values, numbers: Mapping[str, Tensor], start: int, stop: int
    ) -> None:
        """Compute bytes [start, stop) of a piece."""
        sums, into = self._memory[piece]
        here = slice(start // into.itemsize, stop // into.itemsize)
        low = piece * into.numel()
        first, end = low + here.start, low + here.stop
        with torch.no_grad():
            states = self._part(first, end)
            operands = []
            for kind, node in self._region.operands:
                if kind is OperandKind.REDUCED:
                    operands.append(sums[here])
                elif kind is OperandKind.STATE:
                    operands.append(states[node.name])
                else:
                    value = values[node]
                    operands.append(value if kind is OperandKind.NUMBER else value[first:end])
            results = [states[node.name] for node in self._region.states]
            self.kernel.run(FlatPiece(first, operands, [into[here], *results], numbers))

    def _part(self, first: int, end: int) -> dict[str, Tensor]:
        """This rank's state of these elements: engines divide an operation alike in every run."""
        parts = self._parts.setdefault((first, end), {})
        for name in self.states:
            if name not in parts:
                parts[name] = self._initial[name][first:end].clone()
        return parts


def _updated_in_place(region: FusedRegion) -> str:
    """The input whose memory the gather may write: nothing else reads its old value."""
    node = region.weights
    if node is None:
        return ""
    for user in node.users:
        inside = user.target is OWN and all("fused" in one.meta for one in user.users)
        mine = all(one.meta.get("fused") == region.gather.name for one in user.users)
        if user.target is not UPDATE and not (inside and mine):
            return ""
    return node.name


def _rows(node: fx.Node, held: Values, rows: slice, shape: tuple[int, ...]) -> Tensor:
    """Some rows of an operand that is computed in pieces."""

    def of(one: fx.Node) -> Any:
        full = len(shape_of(one)) == len(shape) and shape_of(one)[0] == shape[0]
        return held[one][rows] if full else held[one]

    if pointwise(node):
        arguments: Any = fx.node.map_arg((node.args, node.kwargs), of)
    else:  # a product
        one, two = (held[factor] for factor in node.args)  # type: ignore[index]  # nodes
        arguments = ((one[rows], two), {})
    function: Any = node.target
    found: Tensor = function(*arguments[0], **arguments[1])
    return found
