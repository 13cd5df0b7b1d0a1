"""Plans: the values that equal requests have in common, kept for the next one."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from dlcpd.collectives.order import Loss
from dlcpd.contract.messages import Submit
from dlcpd.core.transfer.layers import Layers
from dlcpd.numerics.codecs.codec import Codec
from dlcpd.numerics.elements import NARROW, STORAGE
from dlcpd.schedules.model import Program

# Of all plans of a client: a step takes some 540 B, so 54 MB at most. A bucket of 25 MB on 64
# ranks has 253 steps: four hundred such plans fit.
MAX_STEPS: Final = 100_000
PLAN_STEPS: Final = 16  # size of a plan without steps, in steps: terms, name, one layer
ROWS_OF_A_STEP: Final = 2  # rows (sizes, exempt ranges, layers) that take as much as a step
# Memory of an operation in flight: bytes for each step, and a byte for each STATE bytes of tensor
STEP_HELD: Final = 150
STATE: Final = 64  # bytes of a tensor for each byte of state of its segments
KEPT_NARROW: Final = 2  # bytes of a residual for each byte of a 16-bit float


@dataclass(frozen=True, slots=True)
class RequestPlan:
    """Values that operations of equal requests have in common, computed once."""

    program: Program
    terms: str
    fingerprint: int
    layers: Layers
    loss: Loss
    codec: Codec | None = None
    receiving: Callable[[int], Program] | None = None  # of a message: the program, by its sender
    recorded: Any = None  # the ledger's own plan, where one is kept
    rows: int = 0  # of the request
    charge: int = 0  # bytes that the engine holds for an operation in flight
    leaves: int = 0  # bytes of its residual, at most


class Plans:
    """Plans of all groups of one client: the most recently used, up to `most` steps in total."""

    def __init__(self, most: int = MAX_STEPS) -> None:
        self._most, self._size = most, 0
        self._plans: OrderedDict[Hashable, RequestPlan] = OrderedDict()

    def __iter__(self) -> Iterator[RequestPlan]:
        return iter(self._plans.values())

    def get(self, key: Hashable) -> RequestPlan | None:
        """The plan of an equal request, if it is kept."""
        if key in self._plans:
            self._plans.move_to_end(key)
        return self._plans.get(key)

    def keep(self, key: Hashable, plan: RequestPlan) -> None:
        """Keep a plan, and remove the least recently used beyond the limit."""
        self._plans[key] = plan
        self._size += _size(plan)
        while self._size > self._most and len(self._plans) > 1:
            self._size -= _size(self._plans.popitem(last=False)[1])


def _size(plan: RequestPlan) -> int:
    return PLAN_STEPS + len(plan.program.steps) + plan.rows // ROWS_OF_A_STEP


def charge(ask: Submit, program: Program) -> int:
    """Bytes that the engine holds for an operation in flight."""
    size = (ask.input_count + ask.output_count) * STORAGE[ask.dtype].itemsize
    return STEP_HELD * len(program.steps) + size // STATE


def most_left_over(ask: Submit, size: int) -> int:
    """Largest residual of `size` bytes of a tensor, bytes: a codec rounds all values, and so does
    the addition of a residual to 16-bit floats, whose residuals are float32."""
    encodes = bool(ask.codec) and not ask.computes  # contributions
    if ask.fill != "residual" or not (encodes or ask.max_loss):
        return 0
    left = size if encodes else int(size * ask.max_loss)
    return KEPT_NARROW * (left + size) if ask.dtype in NARROW else left
