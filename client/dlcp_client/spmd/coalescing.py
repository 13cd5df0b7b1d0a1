"""Gradients and parameters in few operations, each started early and waited for late.

Every operation costs latency. Sums of gradients of one type and one axis share one, in the order in
which the backward pass makes them; the program waits for all of them at its end. Gathers of
parameters share one in the order of their uses; it starts when the one before is first used. Other
gathers share one if they are of one call.
"""

import operator
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

import torch
from torch import fx

from .capture import Kind
from .costs import LEAST
from .emission import SERVES, Collective
from .halves import needed_by
from .partitioner import Partition
from .ratios import Ratio, ratios
from .urgency import classes_of_gradients

# Of one axis and type: the first sum starts after a quarter of the bytes, or later (`LEAST`).
OPERATIONS: Final = 4
# As whole parameters take memory, fewer of them are gathered at once.
GATHERS: Final = 8
METHODS: Final = {
    "all_reduce": "begin_sums",
    "reduce_scatter": "begin_scatters",
    "all_gather": "begin_gathers",
}
Bucket = tuple[Collective, ...]  # compared by its members


def coalesced(partition: Partition) -> fx.Graph:
    """The graph with collectives in buckets: `begin_...` of `ranks`, and `end`."""
    return _Coalescing(partition).run()


def buckets(partition: Partition) -> list[Bucket]:
    """The all-reduces and reduce-scatters whose sum is a gradient and nothing else, in the order of
    the backward pass. A bucket takes about LEAST to send, or has a fourth of the bytes of its
    kind, axis and type if that takes longer."""
    ports = partition.plan.captured.outputs
    others = {port.value for port in ports if port.kind is not Kind.GRADIENT}
    places = {node: at for at, node in enumerate(partition.graph.nodes)}
    each: dict[tuple[str, str, torch.dtype], list[Collective]] = defaultdict(list)
    for one in sorted(partition.collectives, key=lambda one: places[_operand(one.node)]):
        alone = all(user.op == "output" for user in one.node.users) and one.value not in others
        is_sum = one.kind in ("all_reduce", "reduce_scatter")
        if is_sum and one.caller.op == "output" and alone:
            each[one.kind, one.axis, one.value.tensor.dtype].append(one)
    found: list[Bucket] = []
    for (_, axis, _), ones in each.items():
        least = LEAST * partition.costs.link(axis).bytes_per_s
        wanted = round(sum(one.sent for one in ones) / least)
        found += _parts(ones, min(max(wanted, 1), OPERATIONS))
    return found


def gathers(partition: Partition) -> list[list[Bucket]]:
    """Rows of buckets: the all-gathers of parameters by pass, axis and type, in the order of their
    uses."""
    captured = partition.plan.captured
    kinds = [port.kind for port in captured.outputs]
    stored = {
        port.value.node.name
        for port in captured.inputs
        if port.kind in (Kind.PARAMETER, Kind.BUFFER) and port.value is not None
    }
    outputs: Iterable[Any] = partition.graph.output_node().args[0]  # type: ignore[assignment]  # a tuple
    pairs = zip(outputs, kinds, strict=True)
    forward = needed_by([one for one, kind in pairs if kind is not Kind.GRADIENT])
    each: dict[tuple[bool, str, torch.dtype], list[Collective]] = defaultdict(list)
    for one in partition.collectives:
        if one.kind == "all_gather" and _source(_operand(one.node)).name in stored:
            each[one.node in forward, one.axis, one.value.tensor.dtype].append(one)
    return [_parts(ones, GATHERS) for ones in each.values()]


def gathers_of_calls(partition: Partition) -> list[Bucket]:
    """The other all-gathers, of an axis, of several operands of one call. Between them the rank
    calls no other collective: so all operands are there before the first one."""
    stored = {one for row in gathers(partition) for bucket in row for one in bucket}
    each: dict[tuple[fx.Node, str], list[Collective]] = defaultdict(list)
    for one in partition.collectives:
        if one.kind == "all_gather" and one not in stored and one.caller.op != "output":
            each[one.caller, one.axis].append(one)
    places = {node: at for at, node in enumerate(partition.graph.nodes)}
    begins = sorted(places[one.node] for one in partition.collectives)
    found = []
    for ones in each.values():
        first, last = places[ones[0].node], places[ones[-1].node]
        if len(ones) == sum(first <= at <= last for at in begins) > 1:
            found.append(tuple(ones))
    return found


def _parts(ones: Sequence[Collective], count: int) -> list[Bucket]:
    limit = sum(one.sent for one in ones) / count
    found: list[list[Collective]] = [[]]
    filled = 0.0
    for one in ones:
        if filled >= limit:
            found.append([])
            filled = 0.0
        found[-1].append(one)
        filled += one.sent
    return [tuple(bucket) for bucket in found]


def _source(node: fx.Node) -> fx.Node:
    """The tensor that it is a view of, if it is one."""
    while node.op == "call_function" and len(node.all_input_nodes) == 1:
        (node,) = node.all_input_nodes
    return node


def _operand(node: fx.Node) -> fx.Node:
    return node.args[1]  # type: ignore[return-value]  # of a collective: ranks, tensor, axis


class _Coalescing:
    """One copy of a graph."""

    def __init__(self, partition: Partition) -> None:
        self._graph = partition.graph
        self._made = fx.Graph()
        self._of: dict[fx.Node, fx.Node] = {}
        self._begun: dict[Bucket, fx.Node] = {}
        self._sums = buckets(partition)
        for one in partition.collectives:
            one.node.meta[SERVES] = (one,)
        # The last gradient of each bucket.
        self._ready = {_operand(one[-1].node): one for one in self._sums}
        self._classes = classes_of_gradients(partition.plan.captured)
        self._later: dict[Bucket, Bucket] = {}  # by the one that is used before
        self._gathered: dict[fx.Node, Bucket] = {}  # by the first member
        for row in gathers(partition):
            self._later |= pairwise(row)
            self._gathered |= {one[0].node: one for one in row}
        for bucket in gathers_of_calls(partition):
            self._gathered[bucket[0].node] = bucket
        both = (*self._sums, *self._gathered.values())
        self._members = {one.node for bucket in both for one in bucket}
        apart = [one for one in ratios(partition) if one.total not in self._members]
        self._ratios = {one.count: one for one in apart}

    def run(self) -> fx.Graph:
        for node in self._graph.nodes:
            if node.op == "output":
                for bucket in self._sums:
                    self._end(bucket)
            if node in self._ratios:
                self._add_both(self._ratios[node])
            elif node in self._gathered:
                self._gather(self._gathered[node])
            elif node not in self._members:
                self._copied(node)
            if node in self._ready:
                self._begin(self._ready[node])
        return self._made

    def _copied(self, node: fx.Node) -> fx.Node:
        """With its operands: a view of a parameter may be needed early."""
        if node not in self._of:
            self._of[node] = self._made.node_copy(node, self._copied)
        return self._of[node]

    def _add_both(self, ratio: Ratio) -> None:
        """The sums of both numbers, and the quotient."""
        ranks, count, axis = ratio.count.args
        partial: Any = ratio.division.args[0]
        given = [self._copied(count), self._copied(partial)]  # type: ignore[arg-type]  # a node
        args: Any = (self._of[ranks], given, axis)  # type: ignore[index]  # a node
        both = self._made.call_method("sum_numbers", args)
        both.meta[SERVES] = *ratio.count.meta[SERVES], *ratio.total.meta[SERVES]
        self._of[ratio.count] = self._made.call_function(operator.getitem, (both, 0))
        self._of[partial] = self._made.call_function(operator.getitem, (both, 1))
        made = self._made.node_copy(ratio.division, self._copied)
        self._of[ratio.division] = self._of[ratio.total] = made

    def _gather(self, bucket: Bucket) -> None:
        """Start the gathers after these, and wait for these."""
        for one in (bucket, self._later.get(bucket)):
            if one is not None and one not in self._begun:
                self._begin(one)
        self._end(bucket)

    def _begin(self, bucket: Bucket) -> None:
        """Of each member: ranks, tensor, axis, and numbers that the kind of collective has."""
        ranks, _, axis, *_ = bucket[0].node.args
        given = [self._copied(_operand(one.node)) for one in bucket]
        options = [list(each) for each in zip(*(one.node.args[3:] for one in bucket), strict=True)]
        if bucket[0].kind != "all_gather":
            options.append([self._classes[one.value] for one in bucket])
        args: Any = (self._of[ranks], given, axis, *options)  # type: ignore[index]  # a node
        self._begun[bucket] = self._made.call_method(METHODS[bucket[0].kind], args)
        self._begun[bucket].meta[SERVES] = bucket

    def _end(self, bucket: Bucket) -> None:
        found = self._made.call_method("end", (self._begun[bucket],))
        found.meta[SERVES] = bucket
        for at, one in enumerate(bucket):
            self._of[one.node] = self._made.call_function(operator.getitem, (found, at))
