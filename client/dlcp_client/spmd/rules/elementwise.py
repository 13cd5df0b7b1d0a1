"""Elementwise operations, with broadcasting."""

from typing import Any, Final

import torch

from .call import Call
from .rule import ONE, Dims, Rule, Rules, named, rule

aten = torch.ops.aten


def pointwise(call: Call) -> Rule:
    """A factor per dimension of the result; operands are aligned at the last one."""
    shape = call.result.shape
    dims, sizes = named(shape)
    operands = [_aligned(tuple(one.shape), dims, tuple(shape)) for one in call.operands]
    results = [dims if one is not None else () for one in call.results]
    return rule(operands, results, sizes, linear=_linear(call), passes=True)


def _aligned(shape: tuple[int, ...], dims: Dims, full: tuple[int, ...]) -> Dims:
    """The factors of an operand: a dimension that is broadcast has none."""
    skip = len(full) - len(shape)
    return tuple(
        dims[skip + at] if size == full[skip + at] else () for at, size in enumerate(shape)
    )


def _linear(call: Call) -> tuple[frozenset[int], ...]:
    if not call.result.dtype.is_floating_point:
        return ()
    if call.target in SUMS:  # a number that every rank adds would be added several times
        return (frozenset({0, 1}),) if len(call.operands) == 2 else ()
    if call.target in PRODUCTS:
        return tuple(frozenset({at}) for at in range(len(call.operands)))
    return ONE if call.target in LINEAR else ()


def is_pointwise(target: Any) -> bool:
    """Whether torch says that an operation is elementwise. Random numbers depend on the shard."""
    tags = getattr(target, "tags", ())
    return torch.Tag.pointwise in tags and torch.Tag.nondeterministic_seeded not in tags


SUMS: Final = {aten.add.Tensor, aten.sub.Tensor}
PRODUCTS: Final = {aten.mul.Tensor, aten.mul.Scalar}
LINEAR: Final = {
    aten.neg.default, aten.div.Tensor, aten.div.Scalar, aten.clone.default, aten.detach.default,
    aten.alias.default,
}  # fmt: skip

# Elementwise, but without torch's tag.
UNTAGGED: Final = {
    aten.alias.default, aten.clone.default, aten.detach.default, aten._to_copy.default,
    aten.zeros_like.default, aten.ones_like.default, aten.full_like.default,
    aten.empty_like.default, aten.gelu_backward.default, aten.threshold_backward.default,
    aten.tanh_backward.default, aten.sigmoid_backward.default, aten.silu_backward.default,
    aten.elu_backward.default, aten.leaky_relu_backward.default, aten.hardtanh_backward.default,
    aten.softplus_backward.default, aten.native_dropout_backward.default,
    aten.where.self, aten.masked_fill.Scalar, aten.masked_fill.Tensor, aten.rsub.Tensor,
    aten.hardshrink_backward.default, aten.softshrink_backward.default,
    aten.hardsigmoid_backward.default, aten.hardswish.default, aten.hardswish_backward.default,
    aten.mish_backward.default, aten.copy.default, aten.fill.Scalar, aten.fill.Tensor,
    aten.complex.default, aten.polar.default, aten.lift_fresh_copy.default,
    aten.floor_divide.default,
}  # fmt: skip
RULES: Final[Rules] = dict.fromkeys(UNTAGGED, pointwise)
