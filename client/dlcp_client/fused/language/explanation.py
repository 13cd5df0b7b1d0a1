"""explain(): the schedule of a program, with bytes, predicted times, and state per rank."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from torch import Tensor, fx

from .layouts import SUM, is_sliced, layout_of, shape_of
from .operations import ALL_GATHER, ALL_REDUCE, BROADCAST, OWN, REDUCE_SCATTER, SEND, UPDATE
from .program import FusedProgram, operation_of


@dataclass(frozen=True, slots=True)
class Rates:
    """The network and the hosts that times are predicted for."""

    link_bps: float = 1e9  # of each rank, in each direction
    latency: float = 1e-4  # seconds of a collective without bytes
    memory_bytes_per_s: float = 5e9  # of a rank's elementwise operations, read and written


def explain(program: FusedProgram, ranks: int, rates: Rates | None = None) -> str:
    """Tables of operations and of state for a number of ranks. Times are predictions by `rates`,
    without products; a fused operation computes while it sends, so the longer of both counts."""
    rates = rates or Rates()
    rows, sent, seconds = [("operation", "layout", "bytes sent", "ms", "line")], 0, 0.0
    for nodes in _steps(program):
        moved = sum(_sent(node, ranks) for node in nodes)
        wire = moved * 8 / rates.link_bps + rates.latency * any(map(_communicates, nodes))
        work = _memory(nodes, ranks) / rates.memory_bytes_per_s
        lasts = max(wire, work) if len(nodes) > 1 else wire + work
        sent, seconds = sent + moved, seconds + lasts
        last = nodes[-1]
        rows.append(
            (_title(nodes), str(layout_of(last)), f"{moved:,}", _ms(lasts), last.meta["line"])
        )
    rows.append(("all", "", f"{sent:,}", _ms(seconds), ""))
    state = [("input", "layout", "bytes per rank", "of")]
    for node in program.graph.nodes:
        if node.op == "placeholder" and shape_of(node):
            whole = _bytes(node)
            held = -(-whole // ranks) if is_sliced(node) else whole
            state.append((node.name, str(layout_of(node)), f"{held:,}", f"{whole:,}"))
    title = (
        f"program {program.name} on {ranks} ranks; predicted for {rates.link_bps / 1e6:g} Mbit/s, "
        f"{rates.latency * 1e3:g} ms of latency, {rates.memory_bytes_per_s / 1e9:g} GB/s of memory"
    )
    return "\n\n".join([title, _table(rows), _table(state)]) + "\n"


def _steps(program: FusedProgram) -> list[list[fx.Node]]:
    """Nodes in order; those of a fused operation together. Numbers and updates are left out."""
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
        elif _communicates(node) or _touched(node, 1):
            found.append([node])
    return found


def _title(nodes: Sequence[fx.Node]) -> str:
    if len(nodes) == 1:
        return nodes[0].name
    inner = len(nodes) - 2
    scatter = next(node for node in nodes if node.target is REDUCE_SCATTER)
    name = f"{scatter.name} + {inner} elementwise + {nodes[-1].name}, one operation"
    if "pieces" in nodes[-1].meta:
        producer, pieces = nodes[-1].meta["pieces"]
        name += f", in {pieces} pieces after {producer}"
    return name


def _communicates(node: fx.Node) -> bool:
    return node.target in (ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, SEND)


def _sent(node: fx.Node, ranks: int) -> int:
    """Bytes that a rank sends."""
    size = _bytes(node)
    if node.target is ALL_REDUCE:
        return 2 * size * (ranks - 1) // ranks
    if node.target in (REDUCE_SCATTER, ALL_GATHER, BROADCAST):
        return size * (ranks - 1) // ranks
    if node.target is SEND:
        return size // ranks if is_sliced(node) else size
    return 0


def _memory(nodes: Sequence[fx.Node], ranks: int) -> int:
    """Bytes of memory that a rank reads and writes; a fused operation, its operands and results."""
    if len(nodes) == 1:
        return _touched(nodes[0], ranks)
    inside = set(nodes)
    inner = [node for node in nodes[:-1] if node.target is not REDUCE_SCATTER]
    operands = {one for node in inner for one in node.all_input_nodes} - inside
    states = [user for node in nodes[:-1] for user in node.users if user.target is UPDATE]
    scatters = [node for node in nodes if node.target is REDUCE_SCATTER]
    moved = (*scatters, nodes[-1], *operands, *states)
    return sum(_bytes(one) for one in moved if shape_of(one)) // ranks


def _touched(node: fx.Node, ranks: int) -> int:
    """Bytes of memory that a rank reads and writes to compute a node."""
    if _communicates(node) or node.target is OWN or operation_of(node) in ("mm", "receive"):
        return 0
    touched = sum(_bytes(one) for one in (node, *node.all_input_nodes) if shape_of(one))
    sliced = is_sliced(node) or (node.target is SUM and is_sliced(node.all_input_nodes[0]))
    return touched // ranks if sliced else touched


def _bytes(node: fx.Node) -> int:
    value = node.meta["val"]
    return prod(value.shape) * value.element_size() if isinstance(value, Tensor) else 0


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2f}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their longest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
