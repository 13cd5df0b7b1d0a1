"""Rules of operations: which dimensions of operands and results are the same factor.

`rule_of` finds the rule of a call by its ATen operation; each module has the rules of one kind.
"""

from typing import Any, Final

import torch

from . import (
    attention,
    convolution,
    creation,
    elementwise,
    indexing,
    matrices,
    norms,
    pooling,
    products,
    reductions,
    sampling,
    shapes,
    windowed,
)
from .call import Call
from .own import OWN, own_rule
from .rule import Dims, Rule, Rules, rule

__all__ = ["Call", "Dims", "Rule", "rule_of"]

TABLE: Rules = {
    **creation.RULES,
    **shapes.RULES,
    **windowed.RULES,
    **products.RULES,
    **convolution.RULES,
    **pooling.RULES,
    **reductions.RULES,
    **norms.RULES,
    **attention.RULES,
    **indexing.RULES,
    **matrices.RULES,
    **sampling.RULES,
    **elementwise.RULES,
}
aten = torch.ops.aten
# Of tensors in memory, which may lie there in another way than those of one device.
OF_MEMORY: Final = {
    aten.as_strided.default, aten.as_strided_copy.default, aten.as_strided_scatter.default,
    aten._reshape_alias.default,
}  # fmt: skip


def rule_of(call: Call) -> Rule | None:
    """None: the operation cannot run on ranks.

    Raises: BadConfig where a user's own rule does not fit the call.
    """
    if not any(one is not None for one in call.results):  # a number, say
        return None
    found = own_rule if call.target in OWN else TABLE.get(call.target)
    if found is None and elementwise.is_pointwise(call.target):
        found = elementwise.pointwise
    made = found(call) if found is not None else None
    return _whole(call) if made is None and _is_function(call) else made


def _is_function(call: Call) -> bool:
    """Whether the results depend on nothing but the values of the arguments, which do not change:
    every rank can compute them. Not of sparse tensors, which have no shards."""
    target: Any = call.target
    is_random = torch.Tag.nondeterministic_seeded in target.tags
    dense = all(one.layout == torch.strided for one in call.results if one is not None)
    return dense and not (is_random or target._schema.is_mutable or target in OF_MEMORY)


def _whole(call: Call) -> Rule:
    """Every rank computes the whole."""
    results = [() if one is None else ((),) * one.dim() for one in call.results]
    return rule([((),) * one.dim() for one in call.operands], results, {}, is_default=True)
