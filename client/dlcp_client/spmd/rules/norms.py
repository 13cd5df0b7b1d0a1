"""Layer norm: the normalised dimensions stay whole."""

from typing import Final

import torch

from .call import Call
from .rule import Dims, Rule, Rules, named, rule

aten = torch.ops.aten


def _outer(call: Call, shape: torch.Size) -> tuple[Dims, Dims, dict[str, int]]:
    """Factors of the other dimensions, and dimensions that stay whole."""
    last = len(call.option("normalized_shape"))
    dims, sizes = named(shape[: len(shape) - last])
    return dims, ((),) * last, sizes


def layer_norm(call: Call) -> Rule:
    """Weight and bias are whole; mean and deviation lie as the operand does."""
    outer, inner, sizes = _outer(call, call.first.shape)
    operands = [outer + inner] + [inner] * (len(call.operands) - 1)
    return rule(operands, [outer + inner] * 3, sizes)


def layer_norm_backward(call: Call) -> Rule:
    """The gradients of weight and bias are sums over the other dimensions."""
    outer, inner, sizes = _outer(call, call.first.shape)
    of = dict.fromkeys(("grad_out", "input", "mean", "rstd"), outer + inner)
    of |= dict.fromkeys(("weight", "bias"), inner)
    made = [outer + inner, inner, inner]
    results = [
        dims if one is not None else () for dims, one in zip(made, call.results, strict=True)
    ]
    return rule([of[name] for name in call.names], results, sizes)


RULES: Final[Rules] = {
    aten.native_layer_norm.default: layer_norm,
    aten.native_layer_norm_backward.default: layer_norm_backward,
}
