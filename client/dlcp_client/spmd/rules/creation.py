"""Operations that make tensors from numbers."""

from typing import Final

import torch

from dlcp_client.spmd.literals import LITERAL
from dlcp_client.spmd.random_bits import BITS

from .call import Call
from .rule import Rule, Rules, named, rule

aten = torch.ops.aten


def filled(call: Call) -> Rule:
    """Equal values everywhere: any part is like any other."""
    dims, sizes = named(call.result.shape)
    return rule([], [dims], sizes, passes=True, shapes={0: 0})


def filled_like(call: Call) -> Rule:
    """The shape is an argument; the operand lends its type."""
    dims, sizes = named(call.result.shape)
    return rule([((),) * call.first.dim()], [dims], sizes, passes=True, shapes={1: 0})


def counted(call: Call) -> Rule:
    """Every rank makes the whole."""
    return rule([], [((),) * call.result.dim()], {}, passes=True)


RULES: Final[Rules] = {
    BITS: filled,  # they depend on the place, which a rank knows
    aten.full.default: filled, aten.zeros.default: filled, aten.ones.default: filled,
    aten.empty.memory_format: filled,
    aten.new_zeros.default: filled_like, aten.new_ones.default: filled_like,
    aten.new_full.default: filled_like, aten.new_empty.default: filled_like,
    LITERAL: counted,
    aten.arange.default: counted, aten.arange.start: counted, aten.arange.start_step: counted,
    aten.scalar_tensor.default: counted, aten.eye.default: counted, aten.linspace.default: counted,
}  # fmt: skip
