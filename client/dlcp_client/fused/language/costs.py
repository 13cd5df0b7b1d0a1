"""Predicted times of a program's operations: bytes on a link, bytes of memory, products. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from math import prod
from typing import Any

from torch import Tensor, fx

from dlcp_client.quantities import number
from dlcpd.contract.errors import BadConfig

from .layouts import MM, SUM, is_sliced, shape_of
from .operations import ALL_GATHER, ALL_REDUCE, BROADCAST, OWN, REDUCE_SCATTER, SEND, UPDATE
from .program import FusedProgram, operation_of


@dataclass(frozen=True, slots=True)
class Rates:
    """The network and the hosts that times are predicted for."""

    link_bps: float = 1e9  # of each rank, in each direction
    latency: float = 1e-4  # seconds of a collective without bytes
    memory_bytes_per_s: float = 5e9  # of a rank's elementwise operations, read and written
    kernel_bytes_per_s: float = 0.0  # likewise, of the kernel of a fused operation; 0: the same
    alone_bps: float = 0.0  # link_bps of reduce-scatters and all-gathers alone; 0: the same
    product_flops: float = 0.0  # of products, per second; 0: they take no time


@dataclass(frozen=True, slots=True)
class PricedStep:
    """Nodes that run together: one, or those of a fused operation. `sent`: bytes of a rank."""

    nodes: Sequence[fx.Node]
    sent: int
    seconds: float


def checked_rates(rates: Any) -> Rates:
    """`rates`. Raises: BadConfig naming what cannot be predicted for."""
    if not isinstance(rates, Rates):
        raise BadConfig(f"rates={rates!r:.40} is not valid: give Rates(...)")
    for field in fields(Rates):
        value = number(f"Rates {field.name}", getattr(rates, field.name))
        if not value and field.name in ("link_bps", "memory_bytes_per_s"):
            raise BadConfig(f"Rates {field.name}=0 is not valid: use a number above 0")
    return rates


def costs(program: FusedProgram, ranks: int, rates: Rates) -> Iterator[PricedStep]:
    """The steps of a program, in order. Numbers and updates are left out.

    A fused operation computes while it sends, so the longer of both counts. In one that overlaps
    with its producer, the reduction of a piece begins when the piece is there, and the gather when
    all are; its seconds are those beyond the producer's.
    """
    memory = rates.memory_bytes_per_s
    for nodes in _steps(program):
        moved = sum(_sent(node, ranks) for node in nodes)
        wire = moved * 8 / _bps(nodes, rates) + rates.latency * any(map(_communicates, nodes))
        if len(nodes) == 1:
            yield PricedStep(nodes, moved, wire + _work(nodes[0], ranks, rates))
            continue
        kernel = touched_by_kernel(nodes) / ranks / (rates.kernel_bytes_per_s or memory)
        name, pieces = nodes[-1].meta.get("pieces", ("", 1))
        if not name:
            yield PricedStep(nodes, moved, max(wire, kernel))
            continue
        producer = next(node for node in program.graph.nodes if node.name == name)
        made = _work(producer, ranks, rates)
        half = wire / 2  # the reduction; the gather is the other half
        reduced = max(made + half / pieces, made / pieces + half)
        lasts = max(reduced + half, made + kernel) + (pieces - 1) * rates.latency
        yield PricedStep(nodes, moved, lasts - made)


def predicted(program: FusedProgram, ranks: int, rates: Rates) -> float:
    """Seconds of one run."""
    return sum(step.seconds for step in costs(program, ranks, rates))


def _steps(program: FusedProgram) -> list[list[fx.Node]]:
    """Nodes in order; those of a fused operation together."""
    found: list[list[fx.Node]] = []
    at: dict[str, list[fx.Node]] = {}
    for node in program.graph.nodes:
        if node.op != "call_function" or node.target is UPDATE:
            continue
        if "fused" in node.meta:
            if node.meta["fused"] not in at:
                at[node.meta["fused"]] = []
                found.append(at[node.meta["fused"]])
            at[node.meta["fused"]].append(node)
        elif _communicates(node) or node.target is MM or _touched(node):
            found.append([node])
    return found


def _communicates(node: fx.Node) -> bool:
    return node.target in (ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, SEND)


def _sent(node: fx.Node, ranks: int) -> int:
    """Bytes that a rank sends."""
    size = bytes_of(node)
    if node.target is ALL_REDUCE:
        return 2 * size * (ranks - 1) // ranks
    if node.target in (REDUCE_SCATTER, ALL_GATHER, BROADCAST):
        return size * (ranks - 1) // ranks
    if node.target is SEND:
        return size // ranks if is_sliced(node) else size
    return 0


def _bps(nodes: Sequence[fx.Node], rates: Rates) -> float:
    alone = len(nodes) == 1 and nodes[0].target in (REDUCE_SCATTER, ALL_GATHER)
    return (rates.alone_bps if alone else 0) or rates.link_bps


def _work(node: fx.Node, ranks: int, rates: Rates) -> float:
    """Seconds of a rank's computation of a node."""
    if _communicates(node):
        return 0.0
    share = ranks if is_sliced(node) or _of_slices(node) else 1
    if node.target is MM:
        flops = rates.product_flops
        return product_of(node) / flops / share if flops else 0.0
    return _touched(node) / rates.memory_bytes_per_s / share


def product_of(node: fx.Node) -> int:
    """Floating-point operations of a product."""
    rows, columns = shape_of(node)
    return 2 * rows * columns * shape_of(node.all_input_nodes[0])[1]


def touched_by_kernel(nodes: Sequence[fx.Node]) -> int:
    """Bytes that the kernel of a fused operation reads and writes, on all ranks together."""
    inside = set(nodes)
    inner = [node for node in nodes[:-1] if node.target is not REDUCE_SCATTER]
    operands = {one for node in inner for one in node.all_input_nodes} - inside
    states = [user for node in nodes[:-1] for user in node.users if user.target is UPDATE]
    scatters = [node for node in nodes if node.target is REDUCE_SCATTER]
    moved = (*scatters, nodes[-1], *operands, *states)
    return sum(bytes_of(one) for one in moved if shape_of(one))


def _of_slices(node: fx.Node) -> bool:
    return node.target is SUM and is_sliced(node.all_input_nodes[0])


def _touched(node: fx.Node) -> int:
    """Bytes of memory that are read and written to compute all of a node; 0 of a product."""
    if _communicates(node) or node.target in (OWN, MM) or operation_of(node) == "receive":
        return 0
    return sum(bytes_of(one) for one in (node, *node.all_input_nodes) if not _is_number(one))


def _is_number(node: fx.Node) -> bool:
    value = node.meta["val"]
    return isinstance(value, Tensor) and not value.dim()


def bytes_of(node: fx.Node) -> int:
    """Bytes of a value, of all its tensors."""
    value = node.meta["val"]
    tensors = [value] if isinstance(value, Tensor) else [x for x in value if x is not None]
    return sum(prod(x.shape) * x.element_size() for x in tensors)
