"""Reduces operands in a given order. The target may be one of them; no other memory is written.

The order of operands is the order of addition, so a result depends on the operands alone
(P1, P2), not on the rank that computes it or on arrival times. 16-bit floats accumulate in
float32 and are rounded once.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from dlcpd.core.wire.datagram import Bytes
from dlcpd.numerics.elements import (
    COMPLEX,
    INTEGERS,
    LARGEST,
    NARROW,
    STORAGE,
    Array,
    narrow,
    view,
    wide,
    widen,
)

HALF: Final = 0.5  # mantissa by frexp of a power of two
BLOCK: Final = 256 << 10  # bytes of a temporary, which stays in a core's second-level cache


def multiply(a: Array, b: Array, *, out: Array) -> None:
    """out = a * b; `out` may be one of them.

    Complex numbers part by part: numpy's own product rounds differently in the vector unit
    and at the end of an array, and so depends on where an array is cut.
    """
    if not np.iscomplexobj(a):
        np.multiply(a, b, out=out)
        return
    step = BLOCK // out.itemsize
    for start in range(0, len(out), step):
        block = slice(start, start + step)
        x, y = a[block], b[block]
        real = x.real * y.real - x.imag * y.imag
        out[block].imag = x.real * y.imag + x.imag * y.real
        out[block].real = real


Combine = Callable[..., Any]  # of two arrays, into `out`
_COMBINE: Final[dict[str, Combine]] = {
    "sum": np.add,  # of bool: or
    "avg": np.add,
    "product": multiply,  # of bool: and
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}
OPERATIONS: Final = tuple(_COMBINE)
_BITWISE: Final = frozenset({"band", "bor", "bxor"})


def supports(dtype: str, op: str) -> bool:
    """Whether elements of `dtype` can be reduced by `op`.

    Not: bitwise operations of floats, min and max of complex, averages of integers and bool.
    """
    if dtype not in STORAGE or op not in _COMBINE:
        return False
    if dtype in INTEGERS or dtype == "bool":
        return op != "avg"
    return op not in _BITWISE and not (dtype in COMPLEX and op in ("min", "max"))


def reduce_in_order(
    target: Bytes, operands: Sequence[Bytes], dtype: str, op: str, *, divide_by: float = 1
) -> None:
    """target = operands[0] op operands[1] op ..., in this order, divided by `divide_by`.

    All are of equal size, whole elements of `dtype`, which need not be aligned; `op` is one
    that `supports` allows, and "avg" is a sum: the caller gives `divide_by`. The division has
    the precision of the sum. The target may be one of the operands; nothing else is
    written, and temporary memory is at most a few blocks. One operand is copied, bit by bit.
    Overflow and NaN follow IEEE 754 and never warn; integers wrap; sums of bool are "or",
    products "and". With a division, a result overflows only if the quotient does.
    """
    if len(operands) == 1 and divide_by == 1:
        _copy(target, operands[0])
        return
    with np.errstate(all="ignore"):
        if divide_by != 1:
            _average(target, operands, COMPLEX.get(dtype, dtype), divide_by)
        elif dtype in NARROW:
            _reduce_narrow(target, operands, dtype, op)
        else:
            _reduce_wide(target, operands, dtype, op)


def _copy(target: Bytes, source: Bytes) -> None:
    if not np.may_share_memory(target, source) or _address(target) != _address(source):
        np.copyto(target, source)


def _address(data: Bytes) -> int:
    """Address of the first byte. Not `ctypes.data`, which imports and wraps at every call."""
    return int(data.__array_interface__["data"][0])


def _reduce_wide(target: Bytes, operands: Sequence[Bytes], dtype: str, op: str) -> None:
    result, parts = view(target, dtype), [view(operand, dtype) for operand in operands]
    # the target must not overwrite an operand before it is added
    late = [at for at in range(2, len(parts)) if np.may_share_memory(parts[at], result)]
    if late:
        _reduce_late(result, parts, late[-1], _COMBINE[op])
    elif len(parts) > 2:  # by blocks: the sum so far is read again for each operand
        step = BLOCK // result.itemsize
        for start in range(0, len(result), step):
            block = slice(start, start + step)
            _reduce_block(result[block], [part[block] for part in parts], _COMBINE[op])
    else:
        _reduce_block(result, parts, _COMBINE[op])


def _reduce_block(out: Array, parts: list[Array], combine: Combine) -> None:
    total = parts[0]
    for part in parts[1:]:
        combine(total, part, out=out)
        total = out
    if total is not out:
        np.copyto(out, total)


def _reduce_late(out: Array, parts: list[Array], turn: int, combine: Combine) -> None:
    """`out` may be written from operand `turn` on; the sum of those before is a temporary."""
    step = BLOCK // out.itemsize
    early = np.empty(min(step, len(out)), out.dtype)
    for start in range(0, len(out), step):
        block = [part[start : start + step] for part in parts]
        into = out[start : start + step]
        total = early[: len(into)]
        _reduce_block(total, block[:turn], combine)
        _reduce_block(into, [total, *block[turn:]], combine)


def _reduce_narrow(target: Bytes, operands: Sequence[Bytes], dtype: str, op: str) -> None:
    combine, result = _COMBINE[op], view(target, dtype)
    parts = [view(operand, dtype) for operand in operands]
    step = BLOCK // 4  # elements, as float32
    for start in range(0, len(result), step):
        stop = start + step
        total = widen(parts[0][start:stop], dtype)
        for part in parts[1:]:
            combine(total, widen(part[start:stop], dtype), out=total)
        result[start:stop] = narrow(total, dtype)


def _average(target: Bytes, operands: Sequence[Bytes], dtype: str, divide_by: float) -> None:
    """Block by block, with sums in a temporary: after an overflow the operands are needed again.
    The processor flags an overflow, but not for operands that are infinite or NaN."""
    result, parts = view(target, dtype), [view(operand, dtype) for operand in operands]
    kind, exact = wide(dtype), math.frexp(divide_by)[0] == HALF  # a power of two has an inverse
    factor, change = (1 / divide_by, np.multiply) if exact else (divide_by, np.divide)
    fits = dtype not in NARROW and divide_by > 1  # in the target: the quotient cannot overflow
    step = BLOCK // kind.itemsize
    room = np.empty(min(step, len(result)), kind)
    with np.errstate(over="raise"):
        for start in range(0, len(result), step):
            here = result[start : start + step]
            beside = room[: len(here)]
            total, *more = [widen(part[start : start + step], dtype) for part in parts]
            first = total
            try:
                for part in more:
                    total = np.add(total, part, beside)
                total = change(total, factor, here if fits else beside)
            except FloatingPointError:
                total = _quotients([first, *more], divide_by)
            if total is not here:
                here[:] = narrow(total, dtype)


@np.errstate(all="ignore")
def _quotients(parts: list[Array], divide_by: float) -> Array:
    """Sum, then divide. Where that is infinite or NaN although all operands are finite, average
    operands scaled down by a power of two, whose sum fits. Compare datapath/sum.c."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    quotients: Array = total / divide_by
    lacking = ~np.isfinite(quotients)
    for part in parts:
        lacking &= np.isfinite(part)
    if np.count_nonzero(lacking):
        down, largest = 2.0 ** -len(parts).bit_length(), LARGEST[total.dtype.name]
        again = np.zeros(np.count_nonzero(lacking), total.dtype)
        for part in parts:
            again += part[lacking] * total.dtype.type(down)
        again /= divide_by * down
        quotients[lacking] = again.clip(-largest, largest)
    return quotients
