"""Fused attention: batch and heads may be divided, positions and features stay whole."""

from typing import Final

import torch

from .call import Call
from .rule import Dims, Rule, Rules, named, rule

aten = torch.ops.aten
HEADS: Final = 1  # query: batch, heads, positions, features


def flash_attention(call: Call) -> Rule | None:
    """None with dropout, whose random numbers depend on the shard, and where several heads of the
    query share one of the key."""
    query = call.operands[call.names.index("query")]
    key = call.operands[call.names.index("key")]
    if call.option("dropout_p") or query.shape[:2] != key.shape[:2]:
        return None
    outer, sizes = named(query.shape[: HEADS + 1])
    operands = [
        _of_mask(one.shape, outer, query.shape) if name == "attn_mask" else _of(outer, one.dim())
        for name, one in zip(call.names, call.operands, strict=True)
    ]
    results = [_of(outer, one.dim()) if one is not None else () for one in call.results]
    return rule(operands, results, sizes)


def _of(outer: Dims, dims: int) -> Dims:
    return outer + ((),) * (dims - len(outer))


def _of_mask(shape: torch.Size, outer: Dims, query: torch.Size) -> Dims:
    """A mask may lack batch and heads, or have one row of them."""
    if len(shape) <= HEADS + 1:
        return ((),) * len(shape)
    return _of(tuple(d if n == m else () for d, n, m in zip(outer, shape, query, strict=False)), 4)


RULES: Final[Rules] = {
    aten._scaled_dot_product_flash_attention_for_cpu.default: flash_attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: flash_attention,
}
