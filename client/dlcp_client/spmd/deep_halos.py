"""A divided graph with fewer halos: `margins` says which rows a rank computes itself."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import torch
from torch import fx

from . import nodes
from .emission import Collective
from .margins import SUMS, Margins
from .pools import AVERAGE_BACKWARD
from .propagation import Plan
from .window_calls import BACKWARD, NONE, Known, Layouts, Margin, WindowedCall
from .windows import Window, received_rows, row_bytes, sent_rows

aten = torch.ops.aten
ALIASES: Final = {aten.detach.default, aten.alias.default}
Divided: TypeAlias = tuple[fx.Graph, tuple[Collective, ...]]


def with_deep_halos(
    plan: Plan, divided: Divided, known: Known, work_per_s: float, price: float
) -> Divided:
    """The graph with margins along each axis where that takes fewer exchanges. `known`: the nodes
    that are shards of captured tensors; `price`: seconds of work that are worth an exchange."""
    for axis in plan.mesh.names:
        graph, collectives = divided
        if not any(one.kind == "halo_exchange" and one.axis == axis for one in collectives):
            continue
        margins = Margins(graph, plan, Layouts(plan.mesh, axis, known), work_per_s, price)
        writing = _Writing(margins, collectives)
        made = writing.run()
        if _exchanges(made[1]) < _exchanges(collectives):
            divided = made
            known = {writing.of[node]: one for node, one in known.items() if node in writing.of}
    return divided


def _exchanges(collectives: Sequence[Collective]) -> int:
    return sum(one.kind.startswith("halo") and one.sent > 0 for one in collectives)


class _Writing:
    """One copy of a graph. `of`: what became of nodes without a margin."""

    def __init__(self, margins: Margins, collectives: Sequence[Collective]) -> None:
        self._margins, self._layouts = margins, margins.layouts
        self._before = {one.node: one for one in collectives}
        self._made, self.of = fx.Graph(), dict[fx.Node, fx.Node]()
        self._wide: dict[fx.Node, fx.Node] = {}  # with the margin that `margins` says
        self._cut: dict[tuple[fx.Node, Margin], fx.Node] = {}
        self._filled: dict[tuple[fx.Node, Margin, float], fx.Node] = {}
        self._after: list[Collective] = []
        self._ranks = next(iter(margins.graph.nodes))
        self._parts = margins.layouts.mesh.sizes[margins.layouts.axis]
        self._readers: dict[fx.Node, dict[fx.Node, WindowedCall]] = defaultdict(dict)
        self._fills: dict[fx.Node, set[float]] = defaultdict(set)  # by the tensor with the memory
        for node, call in margins.calls.items():
            if call.x is not None:
                self._readers[call.x][node] = call
                self._fills[_memory(call.x)].add(call.fill)

    def run(self) -> Divided:
        """The graph and its collectives."""
        margins = self._margins
        windows = {call.exchange for call in margins.calls.values()}
        for node in margins.graph.nodes:
            if node not in windows:
                self._write(node)
        kept = [
            replace(one, node=self.of[node])
            for node, one in self._before.items()
            if node in self.of and node not in margins.reduces
        ]
        places = {node: at for at, node in enumerate(self._made.nodes)}
        after = sorted([*kept, *self._after], key=lambda one: places[one.node])
        return self._made, tuple(after)

    def _write(self, node: fx.Node) -> None:
        margins = self._margins
        if node in margins.calls:
            self._call(node, margins.calls[node])
        elif node in margins.reduces:
            self._reduce(node, margins.reduces[node])
        elif node in margins.partial or node in margins.held:
            self._elementwise(node)
        elif node.target in SUMS and node.args[0] in margins.partial:
            self.of[node] = self._copy(node, {node.args[0]: self._zeroed(node.args[0])})
        else:
            self.of[node] = self._copy(node, {})

    def _copy(self, node: fx.Node, given: Mapping[Any, fx.Node]) -> fx.Node:
        """With these operands, and shards of all others."""
        return self._made.node_copy(
            node, lambda one: given[one] if one in given else self._with(one, NONE)
        )

    def _call(self, node: fx.Node, call: WindowedCall) -> None:
        margin, given = self._margins.margin_of_result(node), dict[Any, fx.Node]()
        if call.exchange is not None:
            given[call.exchange] = self._window(call, margin)
        if node.target in BACKWARD and node.args[0] in self._margins.partial:
            given[node.args[0]] = self._zeroed(node.args[0])
        made = self._copy(node, given)
        if node.target == AVERAGE_BACKWARD:
            shape: list[Any] = [*node.args[1]]  # type: ignore[misc]  # a list
            dim, _ = self._along(node.args[0])
            shape[dim] = call.widened(margin).reach(self._parts)
            made.update_arg(1, shape)
        (self._wide if node in self._margins.held else self.of)[node] = made

    def _reduce(self, node: fx.Node, call: fx.Node) -> None:
        """The gradient of a window goes back to the owners of its rows, unless it may stay."""
        raw, of = self.of[node.args[1]], self._margins.calls[call]  # type: ignore[index]  # a node
        margin = self._margins.margin_of_result(call)
        if node in self._margins.partial:
            self._wide[node] = raw
        elif of.needed(margin) == NONE:
            self.of[node] = raw
        else:
            window = of.widened(margin)
            like = node if of.x is None else of.x
            rows = received_rows(window, self._parts)
            self.of[node] = self._moved(self._before[node], like, raw, window, rows)

    def _elementwise(self, node: fx.Node) -> None:
        margins = self._margins
        margin = margins.held.get(node) or margins.partial[node]
        gradients = margins.gradients_of(node) if node in margins.partial else set()
        self._wide[node] = self._copy(
            node,
            {
                x: self._padded(x, margin) if x in gradients else self._with(x, margin)
                for x in self._layouts.beside(node) or ()
            },
        )

    def _padded(self, gradient: fx.Node, margin: Margin) -> fx.Node:
        """A gradient with zeros as more rows."""
        have = self._margins.partial.get(gradient, NONE)
        x = self._wide[gradient] if gradient in self._wide else self._with(gradient, NONE)
        more = Margin(margin.before - have.before, margin.after - have.after)
        if more == NONE:
            return x
        dim, _ = self._along(gradient)
        behind = len(self._layouts.known[gradient][1]) - dim - 1
        args = (x, [0, 0] * behind + [*more])
        return nodes.function(self._made, aten.constant_pad_nd.default, args)

    def _with(self, node: fx.Node, margin: Margin) -> fx.Node:
        """A tensor with a margin."""
        margins = self._margins
        have = margins.held.get(node) or margins.fetched.get(node) or NONE
        if margin == NONE and node in self.of:
            return self.of[node]
        if have != NONE and node not in self._wide:
            self._wide[node] = self._fetched(node, have)
        whole = self.of[node] if have == NONE else self._wide[node]
        if have == margin:
            return whole
        if (whole, margin) not in self._cut:
            dim, rows = self._along(node)
            start = have.before - margin.before
            args = (whole, dim, start, start + rows + sum(margin))
            self._cut[whole, margin] = nodes.function(self._made, aten.slice.Tensor, args)
        return self._cut[whole, margin]

    def _fetched(self, node: fx.Node, margin: Margin) -> fx.Node:
        """A shard and its margin, by one exchange: for one call as it was before."""
        _, rows = self._along(node)
        size = rows * self._parts
        window = Window(size, 1, -margin.before, sum(margin) + 1, size)
        of, margin_of = self._readers[node], self._margins.margin_of_result
        found = {of[call].widened(margin_of(call)) for call in of}
        if len(found) == 1 and all(
            one.needed(margin_of(call)) == margin for call, one in of.items()
        ):
            window = found.pop()
        fill = next((one.fill for one in of.values()), 0.0)
        cause = self._before[self._margins.causes[node]]
        rows = sent_rows(window, self._parts)
        return self._moved(cause, node, self.of[node], window, rows, fill)

    def _window(self, call: WindowedCall, of: Margin) -> fx.Node:
        """What a call reads for a result with a margin: rows outside of the dimension have a value
        that it does not notice."""
        if call.x is None:
            raise AssertionError("the call reads a window")
        margin = call.needed(of)
        if max(margin) <= 0:
            return self._with(call.x, margin)
        if len(self._fills[_memory(call.x)]) == 1:
            self._fill_once(call.x, call.fill)
            return self._with(call.x, margin)
        key = call.x, margin, call.fill
        if key not in self._filled:
            args = (self._with(call.x, margin),)
            own = nodes.function(self._made, aten.clone.default, args)
            self._filled[key] = self._fill(own, call.x, margin, call.fill)
        return self._filled[key]

    def _fill_once(self, node: fx.Node, fill: float) -> None:
        """In place: no other call needs another value. The first reader belongs to the forward
        pass; the backward pass must not change a tensor that it may read again."""
        margin = self._margins.held.get(node)
        if margin is not None and (node, margin, fill) not in self._filled:
            self._wide[node] = self._fill(self._wide[node], node, margin, fill)
            self._filled[node, margin, fill] = self._wide[node]

    def _zeroed(self, gradient: Any) -> fx.Node:
        """A gradient whose rows outside of the dimension count for nothing."""
        margin = self._margins.partial[gradient]
        key = gradient, margin, 0.0
        if key not in self._filled:
            self._filled[key] = self._fill(self._wide[gradient], gradient, margin, 0.0)
        return self._filled[key]

    def _fill(self, x: fx.Node, like: fx.Node, margin: Margin, fill: float) -> fx.Node:
        dim, _ = self._along(like)
        args = (self.of[self._ranks], x, self._layouts.axis, dim, tuple(margin), fill)
        return nodes.method(self._made, "fill_outside", args)

    def _moved(
        self, before: Collective, like: fx.Node, x: fx.Node, window: Window, rows: int, *fill: Any
    ) -> fx.Node:
        """An exchange of rows of tensors like one."""
        value, sharding = self._layouts.known[like]
        (dim, _), axis = self._along(like), self._layouts.axis
        args = (self.of[self._ranks], x, axis, dim, tuple(window), *fill)
        made = nodes.method(self._made, before.kind, args)
        local = self._layouts.mesh.local_shape(value.shape, sharding)
        sent = rows * row_bytes(local, dim, value.tensor.element_size())
        one = replace(before, node=made, sent=sent)
        self._after.append(one if before.kind == "halo_reduce" else replace(one, value=value))
        return made

    def _along(self, node: Any) -> tuple[int, int]:
        """The dimension that the axis divides, and the rows of a shard."""
        here = self._layouts.along(node)
        if here is None:
            raise AssertionError(f"{node} has a margin")
        return here.dim + len(self._layouts.known[node][1]), here.rows


def _memory(node: fx.Node) -> fx.Node:
    """The tensor that has the memory of this one."""
    while node.target in ALIASES:
        (node,) = node.all_input_nodes
    return node
