"""The operations that programs have beside those of torch, and what dropout draws.

Inside a program all tensors have their global shape; layouts.py says what each operation needs and
gives. Outside of one, every operation but `kept` raises BadConfig.
"""

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from dlcp_client.quantities import number, whole
from dlcpd.contract.errors import BadConfig

_library: Final = torch.library.Library("dlcp_program", "DEF")  # type: ignore[no-untyped-call]  # torch
_SCHEMAS: Final = (
    "all_reduce(Tensor x, str op) -> Tensor",
    "reduce_scatter(Tensor x, str op, int dim) -> Tensor",
    "all_gather(Tensor x) -> Tensor",
    "own(Tensor x, int dim) -> Tensor",
    "broadcast(Tensor x, int root) -> Tensor",
    "send_next(Tensor x) -> Tensor",
    "receive(Tensor x) -> Tensor",
    "update(Tensor target, Tensor value) -> Tensor",
    "dropout(Tensor x, float p, Tensor seed) -> Tensor",
)
OPS: Final = ("sum", "avg")  # of reductions
_BITS: Final = 0xFFFFFFFF
_ANY: Final = -(1 << 63)  # the rule of a layout knows the tensor that has the dimension


def _outside(name: str) -> Callable[..., Tensor]:
    def call(*_: Any) -> Tensor:
        raise BadConfig(f"{name} is called outside a program: use it in a function of @program")

    return call


def _like_first(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x)


for _schema in _SCHEMAS:
    _name = _schema.partition("(")[0]
    _library.define(_schema)  # type: ignore[no-untyped-call]  # torch
    for _implementation, _key in ((_like_first, "Meta"), (_outside(_name), "CPU")):
        _library.impl(_name, _implementation, _key)  # type: ignore[no-untyped-call]  # torch

_ops: Final = torch.ops.dlcp_program
ALL_REDUCE: Final = _ops.all_reduce.default
REDUCE_SCATTER: Final = _ops.reduce_scatter.default
ALL_GATHER: Final = _ops.all_gather.default
OWN: Final = _ops.own.default
BROADCAST: Final = _ops.broadcast.default
SEND: Final = _ops.send_next.default
RECEIVE: Final = _ops.receive.default
UPDATE: Final = _ops.update.default
DROPOUT: Final = _ops.dropout.default
COLLECTIVES: Final = (ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST)


def all_reduce(x: Tensor, op: str = "sum") -> Tensor:
    """The sum or average of a local tensor over all ranks. Raises: BadConfig."""
    return call(ALL_REDUCE, x, _checked(op))


def reduce_scatter(x: Tensor, op: str = "sum", dim: int = 0) -> Tensor:
    """The same, but each rank gets its slice along `dim` only. Raises: BadConfig."""
    return call(REDUCE_SCATTER, x, _checked(op), whole("dim", dim, _ANY))


def all_gather(x: Tensor) -> Tensor:
    """All slices of a sliced tensor, on every rank."""
    return call(ALL_GATHER, x)


def own(x: Tensor, dim: int = 0) -> Tensor:
    """This rank's slice of a replicated tensor: no bytes travel."""
    return call(OWN, x, whole("dim", dim, _ANY))


def broadcast(x: Tensor, root: int = 0) -> Tensor:
    """The values of rank `root` of a local tensor, on every rank. Raises: BadConfig."""
    return call(BROADCAST, x, whole("root", root))


def send_next(x: Tensor) -> Tensor:
    """Send x to the same rank of the next pipeline stage. Only `receive` reads the result."""
    return call(SEND, x)


def receive(sent: Tensor) -> Tensor:
    """The value that `send_next` sent. It is on the next stage, as all that is computed from it."""
    return call(RECEIVE, sent)


def update(target: Tensor, value: Tensor) -> Tensor:
    """Write `value` to the input `target` when the program has ended. Returns `value`."""
    return call(UPDATE, target, value)


def dropout(x: Tensor, p: float, seed: Tensor) -> Tensor:
    """Zero with probability p, else x / (1 - p), by `kept`. `seed`: an integer input.

    Raises: BadConfig.
    """
    return call(DROPOUT, x, number("dropout p", p, below=1), seed)


def cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The values in another dtype. Raises: BadConfig."""
    given: tuple[Any, Any] = x, dtype
    if not isinstance(given[0], Tensor) or not isinstance(given[1], torch.dtype):
        raise BadConfig(f"cast({x!r:.40}, {dtype!r:.40}): give a tensor, and a dtype of torch")
    return x.to(dtype)


def norm(x: Tensor) -> Tensor:
    """The square root of the sum of all squares. Raises: BadConfig."""
    if not isinstance(x, Tensor):
        raise BadConfig(f"norm({x!r:.40}): give a tensor of the program")
    found: Tensor = torch.linalg.vector_norm(x)
    return found


def kept(index: Tensor, p: float, seed: Tensor) -> Tensor:
    """Whether dropout keeps the elements with these global indices (int64).

    A hash of index and seed, so that a slice draws what the whole tensor would draw, wherever it is
    computed. The multipliers are those of `lowbias32`; all products fit in 63 bits.
    """
    x = (index ^ (index >> 32) * 0x2C1B3C6D) + (seed & 0x7FFFFFFF) * 0x9E3779B9
    x = x & _BITS
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & _BITS
    x = ((x ^ (x >> 15)) * 0x735A2D97) & _BITS
    return torch.ge((x ^ (x >> 15)) >> 8, int(p * (1 << 24)))


def dropped(x: Tensor, p: float, seed: Tensor, index: Tensor) -> Tensor:
    """`dropout` of elements with these global indices."""
    return torch.where(kept(index, p, seed), x * (1 / (1 - p)), 0)


def call(target: Any, *args: Any) -> Tensor:
    """The result of an operation of a program. Raises: BadConfig naming the argument."""
    schema = target._schema  # noqa: SLF001  # torch's only way
    for argument, given in zip(schema.arguments, args, strict=True):
        if str(argument.type) == "Tensor" and not isinstance(given, Tensor):
            raise BadConfig(
                f"{argument.name}={given!r:.40} of {schema.name.partition('::')[2]}: give a tensor "
                "of the program"
            )
    result: Tensor = target(*args)
    return result


def _checked(op: str) -> str:
    if op not in OPS:
        raise BadConfig(f"a reduction with op {op!r:.40}: use {' or '.join(OPS)}")
    return op
