"""explain(): the schedule of a program, with bytes, predicted times, and state per rank."""

from collections.abc import Sequence

from torch import fx

from dlcp_client.quantities import whole

from .costs import Rates, bytes_of, checked_rates, costs
from .layouts import is_sliced, layout_of, shape_of
from .operations import REDUCE_SCATTER
from .program import FusedProgram, check_program


def explain(program: FusedProgram, ranks: int, rates: Rates | None = None) -> str:
    """Tables of operations and of state for a number of ranks. Times are predictions by `rates`,
    by default without products; a fused operation computes while it sends, so the longer of both
    counts.

    Raises: BadConfig.
    """
    check_program(program)
    ranks = whole("ranks", ranks, 1)
    rates = Rates() if rates is None else checked_rates(rates)
    rows, sent, seconds = [("operation", "layout", "bytes sent", "ms", "line")], 0, 0.0
    for step in costs(program, ranks, rates):
        sent, seconds = sent + step.sent, seconds + step.seconds
        last = step.nodes[-1]
        time = _ms(step.seconds)
        rows.append(
            (_title(step.nodes), str(layout_of(last)), f"{step.sent:,}", time, last.meta["line"])
        )
    rows.append(("all", "", f"{sent:,}", _ms(seconds), ""))
    state = [("input", "layout", "bytes per rank", "of")]
    for node in program.graph.nodes:
        if node.op == "placeholder" and shape_of(node):
            size = bytes_of(node)
            held = -(-size // ranks) if is_sliced(node) else size
            state.append((node.name, str(layout_of(node)), f"{held:,}", f"{size:,}"))
    title = (
        f"program {program.name} on {ranks} ranks; predicted for {rates.link_bps / 1e6:g} Mbit/s, "
        f"{rates.latency * 1e3:g} ms of latency, {rates.memory_bytes_per_s / 1e9:g} GB/s of memory"
    )
    return "\n\n".join([title, table(rows), table(state)]) + "\n"


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


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2f}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their longest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
