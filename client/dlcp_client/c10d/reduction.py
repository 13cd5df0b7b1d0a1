"""Maps a ReduceOp and a dtype to the transport's reduction and dtype."""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch
import torch.distributed as dist

from dlcpd.contract.errors import BadOperation, BadTensor

from .transport import REDUCED

_OP: Any = dist.ReduceOp.RedOpType  # torch's stubs leave out its members
_NAMES: Final[dict[Any, str]] = {
    _OP.SUM: "sum",
    _OP.AVG: "avg",
    _OP.PRODUCT: "product",
    _OP.MIN: "min",
    _OP.MAX: "max",
    _OP.BAND: "band",
    _OP.BOR: "bor",
    _OP.BXOR: "bxor",
    _OP.PREMUL_SUM: "sum",
}
_BITWISE: Final = ("band", "bor", "bxor")

# A complex number is reduced as two real ones. Small integers are reduced as int32, whose low bits
# are those of a sum or product that wraps around in the small type.
_CARRIED: Final = {
    torch.complex32: torch.float16,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
    torch.bool: torch.int32,
    torch.uint8: torch.int32,
    torch.int8: torch.int32,
    torch.int16: torch.int32,
} | {dtype: dtype for dtype in REDUCED}

# For bool, + is "or" and * is "and", as in torch's own arithmetic.
_OF_BOOL: Final = {"sum": "max", "product": "min"}


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction as the transport does it."""

    op: str
    carried: torch.dtype
    factor: float | torch.Tensor | None = None  # of PREMUL_SUM: each input is multiplied by it

    @classmethod
    def of(cls, op: Any, dtype: torch.dtype) -> "Reduction":
        """The reduction of tensors of `dtype` by `op`, a dist.ReduceOp.

        Raises: BadOperation, BadTensor.
        """
        kind = getattr(op, "op", op)
        if kind not in _NAMES:
            raise BadOperation(
                f"{op!r} is not a reduction of dlcpd: use dist.ReduceOp.SUM, or another member "
                "of ReduceOp"
            )
        if kind != _OP.PREMUL_SUM:
            return _unscaled(kind, dtype)
        _check(_NAMES[kind], dtype, scaled=True)
        return cls(_NAMES[kind], _CARRIED[dtype], op.__getstate__()[1])


@cache  # one for each operation and dtype
def _unscaled(kind: Hashable, dtype: torch.dtype) -> Reduction:
    name = _NAMES[kind]
    _check(name, dtype, scaled=False)
    return Reduction(_OF_BOOL.get(name, name) if dtype == torch.bool else name, _CARRIED[dtype])


def _check(name: str, dtype: torch.dtype, *, scaled: bool) -> None:
    if dtype not in _CARRIED:
        known = ", ".join(str(d).removeprefix("torch.") for d in _CARRIED)
        raise BadTensor(f"{dtype} cannot be reduced; convert to one of {known}")
    if (name == "avg" or scaled) and not (dtype.is_floating_point or dtype.is_complex):
        raise BadOperation(
            f"dlcpd would round an average or scaled sum of {dtype}: use SUM and divide, or a "
            "float dtype"
        )
    if dtype.is_complex and name not in ("sum", "avg"):
        raise BadOperation(f"{name} of {dtype} is not defined: complex numbers have SUM and AVG")
    if dtype.is_floating_point and name in _BITWISE:
        raise BadOperation(f"{name} of {dtype} is not defined: use an integer dtype or bool")
