"""Rules of operations: which dimensions of operands and results are the same factor.

`rule_of` finds the rule of a call by its ATen operation; each module has the rules of one kind.
"""

from . import (
    attention,
    convolution,
    creation,
    elementwise,
    indexing,
    norms,
    pooling,
    products,
    reductions,
    shapes,
    windowed,
)
from .call import Call
from .rule import Dims, Rule, Rules

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
    **elementwise.RULES,
}


def rule_of(call: Call) -> Rule | None:
    """None: the operation has no rule."""
    found = TABLE.get(call.target)
    if found is None and elementwise.is_pointwise(call.target):
        found = elementwise.pointwise
    if found is None or not any(one is not None for one in call.results):  # a number, say
        return None
    return found(call)
