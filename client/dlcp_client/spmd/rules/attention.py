"""Fused attention: batch and heads may be divided, positions and features stay whole."""

from typing import Final

import torch

from .call import Call
from .rule import Dims, Rule, Rules, rule

aten = torch.ops.aten
HEADS: Final = 1  # query: batch, heads, positions, features
BACKWARD: Final = aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def flash_attention(call: Call) -> Rule | None:
    """None with dropout, whose random numbers depend on the shard. Several heads of the query may
    share one of the key: those of the query are then two factors."""
    query = call.operands[call.names.index("query")]
    key = call.operands[call.names.index("key")]
    if call.option("dropout_p") or query.shape[0] != key.shape[0]:
        return None
    sizes = {
        "b": query.shape[0],
        "h": key.shape[HEADS],
        "g": query.shape[HEADS] // key.shape[HEADS],
    }
    sizes = {name: size for name, size in sizes.items() if size > 1}
    batch, head, group = (tuple(name for name in one if name in sizes) for one in "bhg")
    of = {"query": (batch, head + group), "key": (batch, head), "value": (batch, head)}
    operands = [
        _of_mask(one.shape, of["query"], query.shape)
        if name == "attn_mask"
        else _of(of.get(name, of["query"]), one.dim())
        for name, one in zip(call.names, call.operands, strict=True)
    ]
    backward = call.target == BACKWARD
    names = ["query", "key", "value"] if backward else ["query"] * len(call.results)
    pairs = zip(names, call.results, strict=True)
    results = [_of(of[name], one.dim()) if one is not None else () for name, one in pairs]
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
    BACKWARD: flash_attention,
}
