"""Rank-ordered reduction of one chunk.

The order of addition is the order of ranks, whoever computes it and whenever the
parts arrived, so a result depends on the parts alone (P1, P2). 16-bit floats
accumulate in float32 and are rounded once.
"""

from typing import Final

import numpy as np

from dlcpd.core.datagram import Bytes
from dlcpd.numerics.elements import NARROW, Array, narrow, view, widen

_COMBINE: Final = {"sum": np.add, "avg": np.add, "min": np.minimum, "max": np.maximum}


def reduce_in_rank_order(parts: list[Bytes], rank: int, dtype: str, op: str) -> None:
    """Reduce `parts` (one per rank, in rank order) into `parts[rank]`.

    The other parts are scratch and may be overwritten. "avg" divides the sum by the
    number of parts, in the precision it was summed in. Overflow and NaN follow
    IEEE 754 and never warn; integers wrap.
    """
    with np.errstate(all="ignore"):
        if dtype in NARROW:
            _reduce_narrow(parts, rank, dtype, op)
        else:
            _reduce_wide([view(part, dtype) for part in parts], rank, op)


def _reduce_wide(parts: list[Array], rank: int, op: str) -> None:
    combine = _COMBINE[op]
    own = parts[rank]
    total = parts[0]
    for index in range(1, len(parts)):
        # own must stay intact until its turn; from then on the total lives in it
        target = own if index >= rank else total
        combine(total, parts[index], out=target)
        total = target
    if op == "avg":
        np.divide(own, len(parts), out=own)


def _reduce_narrow(parts: list[Bytes], rank: int, dtype: str, op: str) -> None:
    combine = _COMBINE[op]
    total = widen(view(parts[0], dtype), dtype)
    for part in parts[1:]:
        combine(total, widen(view(part, dtype), dtype), out=total)
    if op == "avg":
        np.divide(total, len(parts), out=total)
    view(parts[rank], dtype)[:] = narrow(total, dtype)
