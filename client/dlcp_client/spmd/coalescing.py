"""Sums of gradients in few operations, each started as soon as its last gradient is there.

Every operation costs latency. Gradients of one type and one axis share one, in the order in which
the backward pass makes them; the program waits for all of them at its end.
"""

import operator
from collections import defaultdict
from typing import Any, Final

import torch
from torch import fx

from .capture import Kind
from .emission import Collective
from .partitioner import Partition

OPERATIONS: Final = 4  # of one axis and type: the first starts after a quarter of the bytes
Bucket = list[Collective]


def coalesced(partition: Partition) -> fx.Graph:
    """The graph with the sums of gradients in buckets: `begin_sum` and `end_sum` of `ranks`."""
    found = buckets(partition)
    members = {one.node for bucket in found for one in bucket}
    ready = {_operand(bucket[-1].node): bucket for bucket in found}  # the last gradient of each
    made = fx.Graph()
    of: dict[fx.Node, fx.Node] = {}
    begun: list[tuple[Bucket, fx.Node]] = []
    for node in partition.graph.nodes:
        if node.op == "output":
            _end(made, begun, of)
        if node not in members:
            of[node] = made.node_copy(node, lambda one: of[one])
        if node in ready:
            begun.append((ready[node], _begin(made, ready[node], of)))
    return made


def buckets(partition: Partition) -> list[Bucket]:
    """The all-reduces whose sum is a gradient and nothing else, in the order of the backward pass.
    Each bucket has a fourth of the bytes of its type and axis, or a little more."""
    ports = partition.plan.captured.outputs
    others = {port.value for port in ports if port.kind is not Kind.GRADIENT}
    places = {node: at for at, node in enumerate(partition.graph.nodes)}
    each: dict[tuple[str, torch.dtype], Bucket] = defaultdict(list)
    for one in sorted(partition.collectives, key=lambda one: places[_operand(one.node)]):
        alone = all(user.op == "output" for user in one.node.users) and one.value not in others
        if one.kind == "all_reduce" and one.caller.op == "output" and alone:
            each[one.axis, one.value.tensor.dtype].append(one)
    return [bucket for ones in each.values() for bucket in _parts(ones)]


def _parts(ones: Bucket) -> list[Bucket]:
    limit = sum(one.sent for one in ones) / OPERATIONS
    found: list[Bucket] = [[]]
    filled = 0.0
    for one in ones:
        if filled >= limit:
            found.append([])
            filled = 0.0
        found[-1].append(one)
        filled += one.sent
    return found


def _operand(node: fx.Node) -> fx.Node:
    return node.args[1]  # type: ignore[return-value]  # of a collective: ranks, tensor, axis


def _begin(made: fx.Graph, bucket: Bucket, of: dict[fx.Node, fx.Node]) -> fx.Node:
    ranks: Any = bucket[0].node.args[0]
    given = [of[_operand(one.node)] for one in bucket]
    return made.call_method("begin_sum", (of[ranks], given, bucket[0].axis))


def _end(made: fx.Graph, begun: list[tuple[Bucket, fx.Node]], of: dict[fx.Node, fx.Node]) -> None:
    for bucket, pending in begun:
        sums = made.call_method("end_sum", (pending,))
        for at, one in enumerate(bucket):
            of[one.node] = made.call_function(operator.getitem, (sums, at))
