"""Reductions, scans and softmax."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import torch

from .call import Call
from .rule import ONE, Dims, Rule, Rules, named, rule, without

aten = torch.ops.aten


def _reduced(call: Call) -> list[int]:
    """The dimensions that a call reduces."""
    dims = call.first.dim()
    chosen: Any = None
    if any(one.name == "dim" for one in call.target._schema.arguments):
        chosen = call.option("dim")
    if chosen is None or chosen == []:
        return list(range(dims))
    return [dim % max(dims, 1) for dim in ([chosen] if isinstance(chosen, int) else chosen)]


def _left(call: Call, dims: Dims, which: Sequence[int]) -> Dims:
    """The factors of the result, which may keep the reduced dimensions with one row."""
    if call.result.dim() == len(dims):
        return without(dims, which)
    return tuple(dim for at, dim in enumerate(dims) if at not in which)


def add_up(call: Call) -> Rule:
    """A sum: partial where its dimensions are divided."""
    dims, sizes = named(call.first.shape)
    linear = ONE if call.first.dtype.is_floating_point else ()
    return rule([dims], [_left(call, dims, _reduced(call))], sizes, linear=linear)


def count_up(call: Call) -> Rule:
    """Likewise, but not linear."""
    return replace(add_up(call), linear=())


def reduce_whole(call: Call) -> Rule:
    """A reduction that is not a sum: its dimensions stay whole."""
    dims, sizes = named(call.first.shape)
    which = _reduced(call)
    kept = without(dims, which)
    results = [_left(call, kept, which) for _ in call.results]
    return rule([kept], results, sizes)


def scan(name: str, call: Call) -> Rule:
    """Elementwise but for one dimension, which stays whole."""
    dims, sizes = named(call.first.shape)
    kept = without(dims, [call.dim(name, call.first.dim())])
    linear = ONE if call.target == aten.cumsum.default else ()
    return rule(
        [kept] * len(call.operands), [kept] * len(call.results), sizes, linear=linear, passes=True
    )


_along_dim = partial(scan, "dim")

RULES: Final[Rules] = {
    aten.sum.default: add_up, aten.sum.dim_IntList: add_up,
    aten.nansum.default: count_up, aten.count_nonzero.dim_IntList: count_up,
    aten.count_nonzero.default: count_up,
    aten.amax.default: reduce_whole, aten.amin.default: reduce_whole,
    aten.max.default: reduce_whole, aten.max.dim: reduce_whole,
    aten.min.default: reduce_whole, aten.min.dim: reduce_whole,
    aten.argmax.default: reduce_whole, aten.argmin.default: reduce_whole,
    aten.any.default: reduce_whole, aten.any.dim: reduce_whole,
    aten.all.default: reduce_whole, aten.all.dim: reduce_whole,
    aten.prod.default: reduce_whole, aten.prod.dim_int: reduce_whole,
    aten.logsumexp.default: reduce_whole, aten.linalg_vector_norm.default: reduce_whole,
    aten.median.dim: reduce_whole, aten.nanmedian.dim: reduce_whole,
    aten.mode.default: reduce_whole,
    aten.aminmax.default: reduce_whole, aten.any.dims: reduce_whole, aten.all.dims: reduce_whole,
    aten.kthvalue.default: reduce_whole,
    aten.std.correction: reduce_whole, aten.std_mean.correction: reduce_whole,
    aten.var.correction: reduce_whole, aten.var_mean.correction: reduce_whole,  # of one element
    aten.cumsum.default: _along_dim, aten.cumprod.default: _along_dim,
    aten.sort.default: _along_dim, aten.sort.stable: _along_dim, aten.topk.default: _along_dim,
    aten.cummax.default: _along_dim, aten.cummin.default: _along_dim,
    aten.logcumsumexp.default: _along_dim, aten._safe_softmax.default: _along_dim,
    aten._softmax.default: _along_dim, aten._log_softmax.default: _along_dim,
    aten._softmax_backward_data.default: _along_dim,
    aten._log_softmax_backward_data.default: _along_dim,
}  # fmt: skip
