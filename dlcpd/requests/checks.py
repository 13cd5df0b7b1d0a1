"""Checks that this engine can carry out a request: its memory, ranks, policy and layers."""

from itertools import pairwise
from typing import Final

from dlcpd.collectives.order import Group
from dlcpd.contract.codec import check_takes, parsed
from dlcpd.contract.collectives import COLLECTIVES, LOSSY, Shape
from dlcpd.contract.errors import BadMessage, BadPolicy
from dlcpd.contract.messages import LayerRow, Submit
from dlcpd.contract.policy import GATHERS
from dlcpd.contract.traffic import traffic_classes
from dlcpd.core.wire.datagram import Bytes
from dlcpd.core.wire.header import MAX_TRANSFERS
from dlcpd.numerics.elements import INTEGERS, STORAGE
from dlcpd.numerics.reduce import supports
from dlcpd.schedules.model import Program

PAIR: Final = 2  # ranks
ALIGNMENT: Final = 64  # bytes; a cache line: where an operation's memory begins


def check(ask: Submit, group: Group) -> None:
    """Check a request without its memory, once for all equal ones. Raises: BadMessage,
    BadPolicy."""
    size = ask.input_count * STORAGE[ask.dtype].itemsize
    _check_peers(ask, group)
    _check_policy(ask)
    _check_exempt(ask, size)
    _check_layers(ask, size)
    _check_divided(ask)
    _check_computes(ask)
    _check_adds(ask, group)


def memory_of(ask: Submit, arena: Bytes, which: str) -> Bytes:
    """The "input" or "output" of a request in the arena. Raises: BadMessage."""
    start, count = getattr(ask, which), getattr(ask, f"{which}_count")
    size = count * STORAGE[ask.dtype].itemsize
    if start % ALIGNMENT or start + size > len(arena):
        raise BadMessage(
            f"operation {ask.operation}: {which} of {size} B at {start} is not in the arena, or "
            f"not at a multiple of {ALIGNMENT}"
        )
    return arena[start : start + size]


def check_apart(ask: Submit, memory: tuple[Bytes, Bytes]) -> None:
    """Raises: BadMessage if the client would compute an output that overlaps its input."""
    if ask.computes and abs(ask.input - ask.output) < len(memory[0]):
        raise BadMessage(
            f"operation {ask.operation}: its client computes the output from the input, which must "
            f"be other memory"
        )


def check_transfers(ask: Submit, program: Program) -> None:
    """Raises: BadMessage if the wire has no number for a transfer."""
    most = max((index for _, index in (*program.sends, *program.receives)), default=0)
    if most >= MAX_TRANSFERS:
        raise BadMessage(
            f"operation {ask.operation}: {most + 1} transfers between two ranks, at most "
            f"{MAX_TRANSFERS}; make [network] chunk_bytes larger on all hosts"
        )


def _check_peers(ask: Submit, group: Group) -> None:
    if ask.peer >= group.size:
        raise BadMessage(f"{ask.collective} names rank {ask.peer} of a group of {group.size}")
    if ask.sizes and len(ask.sizes) != group.size:
        raise BadMessage(f"{len(ask.sizes)} rows of sizes for a group of {group.size}")
    if any(amount < 0 for row in ask.sizes for amount in row):
        raise BadMessage("sizes are counts of elements, not negative")


def _check_policy(ask: Submit) -> None:
    if ask.max_loss and not COLLECTIVES[ask.collective].may_lose:
        raise BadPolicy(f"{ask.collective} is always exact: only gradients may lose anything")
    if ask.max_loss and ask.reduce not in ("sum", "avg"):
        raise BadPolicy(f"{ask.reduce} cannot lose anything: use an exact policy")
    if ask.max_loss and not ask.name:
        raise BadPolicy("a bounded operation needs a name, which keys its residual")
    if ask.codec:
        _check_codec(ask)
    if ask.scale != 1.0 and ask.dtype in INTEGERS:
        raise BadPolicy(f"scale {ask.scale:g}: {ask.dtype} carries no loss scale")
    if COLLECTIVES[ask.collective].reduces and not supports(ask.dtype, ask.reduce):
        hint = ": use sum and divide" if ask.reduce == "avg" else ""
        raise BadPolicy(f"{ask.reduce} of {ask.dtype} is not defined{hint}")


def _check_codec(ask: Submit) -> None:
    if not COLLECTIVES[ask.collective].may_lose:
        raise BadPolicy(f"{ask.collective} has no codec: only {' and '.join(LOSSY)} can have one")
    check_takes(parsed(ask.codec), ask.dtype, ask.reduce)
    if ask.computes and ask.codec not in GATHERS:
        raise BadPolicy(
            f"codec {ask.codec} of an operation whose client computes: it encodes results, which "
            f"takes {' or '.join(GATHERS)}"
        )
    if not ask.computes and ask.fill == "residual" and not ask.name:
        raise BadPolicy("an operation with a codec needs a name, which keys its residual")


def _check_divided(ask: Submit) -> None:
    """Both ends of every transfer must find it in the same part."""
    row = COLLECTIVES[ask.collective]
    if ask.divided and (ask.sizes or row.message or row.shape is Shape.NOTHING):
        raise BadMessage(f"operation {ask.operation}: {ask.collective} here cannot be divided")


def _check_computes(ask: Submit) -> None:
    if ask.computes and ask.collective != "all_reduce":
        raise BadMessage(f"operation {ask.operation}: in {ask.collective} no client computes")


def _check_adds(ask: Submit, group: Group) -> None:
    """A residual would be added to a part that the engine does not read."""
    exact = not (ask.max_loss or ask.codec or ask.name)
    reduces = ask.collective == "reduce_scatter" and ask.reduce in ("sum", "avg")
    if ask.adds and not (reduces and exact and group.size == PAIR):
        raise BadMessage(
            f"operation {ask.operation}: its client adds its own part, which only an exact sum or "
            f"average without a name allows, in a reduce_scatter of two ranks"
        )


def _check_exempt(ask: Submit, size: int) -> None:
    end = 0
    for start, stop in ask.exempt:
        if not end <= start < stop <= size:
            raise BadMessage(f"exempt range {start}..{stop}: sorted, disjoint, within {size} B")
        end = stop


def _check_layers(ask: Submit, size: int) -> None:
    known, starts = len(traffic_classes()), [row.start for row in ask.layers]
    ascending = all(a < b for a, b in pairwise(starts))
    if starts and not (starts[0] == 0 and ascending and starts[-1] < size):
        raise BadMessage(f"layers start at {starts[:4]}...: ascending from 0, within {size} B")
    for _, traffic_class, millionths in [LayerRow(0, ask.traffic_class, 0), *ask.layers]:
        if not 0 <= traffic_class < known or not 0 <= millionths <= round(ask.max_loss * 1e6):
            raise BadMessage(
                f"layer of class {traffic_class}, bound {millionths} millionths: classes are "
                f"0..{known - 1}, the bound at most that of the operation ({ask.max_loss:g})"
            )
