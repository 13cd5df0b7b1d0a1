"""Margins: rows beside its shard that a rank computes too. A chain of windows then has one halo.

A convolution of a convolution reads a row of its neighbour's result. A rank that fetches a row more
of the first operand computes that row itself. Likewise a gradient of such rows need not go back to
their owner: gradients of weights are sums over all ranks, and it does not matter which of them
computes an addend. A tensor with a margin has the rows of a rank and some before and after them;
those outside of the dimension have no meaning.

`Margins` decides which tensors of a divided graph have which margins; `deep_halos` writes it anew.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, Final

import torch
from torch import fx

from .combined import OF
from .propagation import Plan
from .window_calls import BACKWARD, FORWARD, NONE, Along, Layouts, Margin, calls_of, reduce_of

aten = torch.ops.aten
SUMS: Final = {aten.sum.default, aten.sum.dim_IntList}


class Margins:
    """`held`: tensors that a rank computes with a margin; `fetched`: those of which it gets one by
    an exchange; `partial`: gradients of windows that do not go back to the owners of the rows; all
    by node. `price`: seconds of work that are worth an exchange less."""

    def __init__(
        self, graph: fx.Graph, plan: Plan, layouts: Layouts, work_per_s: float, price: float
    ) -> None:
        self.graph, self.layouts, self._plan = graph, layouts, plan
        self._least = price * work_per_s
        self.calls = calls_of(graph, layouts)
        pairs = ((reduce_of(node), node) for node in self.calls if node.target in BACKWARD)
        self.reduces = {reduce: node for reduce, node in pairs if reduce is not None}
        self.held: dict[fx.Node, Margin] = {}
        self.fetched: dict[fx.Node, Margin] = {}
        self.partial: dict[fx.Node, Margin] = {}
        self.causes: dict[fx.Node, fx.Node] = {}  # the exchange that a fetched margin replaces
        self._free = self._without_exchange()
        self._settle()
        self._defer()
        self._settle()  # also what gradients with margins read

    def margin_of_result(self, call: fx.Node) -> Margin:
        """Of a call on a window, or of the gradient that another one begins with."""
        if call.target in FORWARD:
            return self.held.get(call, NONE)
        return self.partial.get(call.args[0], NONE)  # type: ignore[arg-type]  # a node

    def _without_exchange(self) -> set[fx.Node]:
        """The tensors that can have a margin without an exchange more than there is."""
        found = {call.x for call in self.calls.values() if _is_more(call.needed(NONE))}
        for node in self.graph.nodes:
            call = self.calls.get(node)
            if call is None:
                beside = self.layouts.beside(node)
                has = bool(beside) and found.issuperset(beside or ())
            else:
                has = node.target in FORWARD and (_is_more(call.needed(NONE)) or call.x in found)
            if has:
                found.add(node)
        return {one for one in found if one is not None}

    def _settle(self) -> None:
        """Margins from those of the results back to the operands."""
        wanted: dict[fx.Node, Margin] = defaultdict(Margin)
        self.held, self.fetched = {}, {}
        for node in reversed(self.graph.nodes):
            margin = wanted[node]
            if _is_more(margin):
                (self.held if self._repeats(node, margin) else self.fetched)[node] = margin
            for x, more in self._wanted_by(node):
                wanted[x] = wanted[x].hull(more)
                call = self.calls.get(node)
                cause = self.causes.get(node) if call is None else call.exchange
                if cause is not None:
                    self.causes.setdefault(x, cause)

    def _wanted_by(self, node: fx.Node) -> Iterator[tuple[fx.Node, Margin]]:
        call = self.calls.get(node)
        if call is not None:
            if call.x is not None:
                yield call.x, call.needed(self.margin_of_result(node))
        elif node in self.held or (node in self.partial and node not in self.reduces):
            margin = self.held.get(node) or self.partial[node]
            for x in self.layouts.beside(node) or ():
                if x not in self.partial:
                    yield x, margin

    def _repeats(self, node: fx.Node, margin: Margin) -> bool:
        """Whether a rank computes a tensor with a margin, instead of fetching that."""
        here = self.layouts.along(node)
        if here is None or self._work(node, here) * sum(margin) > self._least * here.rows:
            return False
        if node in self.calls:
            return node.target in FORWARD and node in self._free
        beside = self.layouts.beside(node)
        return bool(beside) and self._free.issuperset(beside or ())

    def _work(self, node: fx.Node, here: Along) -> float:
        """Multiplications, or elements, of a call on a shard."""
        value, sharding = self.layouts.known[node]
        of: Any = node.meta.get(OF)
        each = 1
        if node.target == aten.convolution.default:
            each = prod(of.args[1].meta["val"].shape[1:])
        elif node.target in FORWARD:
            each = prod(of.args[1])
        return float(prod(self.layouts.mesh.local_shape(value.shape, sharding)) * each)

    def _defer(self) -> None:
        """The gradients that stay with the ranks that computed them."""
        for node in self.graph.nodes:
            if node in self.reduces:
                op = self.reduces[node]
                margin = self.calls[op].needed(self.margin_of_result(op))
                if min(margin) >= 0 and margin != NONE and self._accepts(node, margin):
                    self.partial[node] = margin
            elif node not in self.calls:
                self._pass_on(node)

    def _pass_on(self, node: fx.Node) -> None:
        given = [one for one in node.all_input_nodes if one in self.partial]
        joined = self.joined(node, given[0], self.partial[given[0]]) if given else None
        if joined is not None:
            self.partial[node] = joined

    def _accepts(self, node: fx.Node, margin: Margin) -> bool:
        """Whether all that a gradient goes to may be sums over the rows that each rank has."""
        left = [(node, margin)]
        while left:
            gradient, margin = left.pop()
            for user in gradient.users:
                call = self.calls.get(user)
                if call is not None:
                    begins = user.target in BACKWARD and user.args[0] is gradient
                    if not begins or not self._can_hold(call.x, call.needed(margin)):
                        return False
                elif not self._adds_rows(user, gradient):
                    joined = self.joined(user, gradient, margin)
                    if joined is None:
                        return False
                    left.append((user, joined))
        return True

    def _adds_rows(self, node: fx.Node, x: fx.Node) -> bool:
        here = self.layouts.along(x)
        if node.target not in SUMS or here is None:
            return False
        dims: Any = node.args[1] if len(node.args) > 1 else None
        count = len(self.layouts.known[x][1])
        return not dims or here.dim in {dim % count - count for dim in dims}

    def joined(self, node: fx.Node, gradient: fx.Node, margin: Margin) -> Margin | None:
        """The margin of a call that is linear in gradients with margins. None: it is another."""
        given = self.gradients_of(node, gradient)
        for one in given:
            margin = margin.hull(self.partial.get(one, NONE))
        rest = [one for one in self.layouts.beside(node) or () if one not in given]
        return margin if given and all(self._can_hold(one, margin) for one in rest) else None

    def gradients_of(self, node: fx.Node, gradient: fx.Node | None = None) -> set[fx.Node]:
        """The operands that are gradients of an elementwise call that is linear in them. `gradient`
        is one, besides those with margins. None of them: the call is not."""
        beside, operands = self.layouts.beside(node), _operands(node)
        given = {at for at, one in enumerate(operands) if one is gradient or one in self.partial}
        linear = self._linear(node) if beside else ()
        every = frozenset(range(len(operands)))
        if frozenset(given) in linear:
            return {operands[at] for at in given}
        if every in linear and beside is not None and set(operands) == set(beside):
            return set(operands)
        return set()

    def _linear(self, node: fx.Node) -> Sequence[frozenset[int]]:
        if str(node.target).endswith("_backward.default"):  # elementwise: of an activation
            return (frozenset({0}),)
        return self._plan.rules[node.meta[OF]].linear

    def _can_hold(self, x: fx.Node | None, margin: Margin) -> bool:
        """Whether a tensor has a margin, or elementwise calls can give it one."""
        left = [x] if x is not None and _is_more(margin) else []
        while left:
            node = left.pop()
            have = self.held.get(node) or self.fetched.get(node) or NONE
            if have.hull(margin) == have.hull(NONE):
                continue
            beside = self.layouts.beside(node)
            if not beside or not self._repeats(node, margin):
                return False
            left += beside
        return True


def _is_more(margin: Margin) -> bool:
    return max(margin) > 0


def _operands(node: fx.Node) -> list[fx.Node]:
    """The operands of a call in order; one that is given twice is there twice."""
    found: list[fx.Node] = []
    fx.node.map_arg((node.args, node.kwargs), found.append)
    return found
