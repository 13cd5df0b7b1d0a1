"""Products whose sums are one: linear calls add partial sums, and the total is added up once.

Of the backward pass, the products of an attention's queries, keys and values are such terms.
"""

from collections.abc import Sequence
from math import prod

from torch import fx

from .capture import Value
from .propagation import Plan
from .rules import Rule


def passes_on(rule: Rule, places: Sequence[Value | None], partial: frozenset[int]) -> bool:
    """Whether a call passes partial sums on: it is linear in exactly these operands, nothing else
    uses them, and the results are not larger. `places`: in the order of `Rule.places`."""
    if partial not in rule.linear:
        return False
    given = {value for at in partial if (value := places[at]) is not None}
    size = sum(prod(value.shape) for value in given)
    made = sum(prod(one.shape) for one in places[len(rule.operands) :] if one is not None)
    return made <= size and all(len(value.node.users) == 1 for value in given)


def terms_of_sums(plan: Plan) -> dict[fx.Node, int]:
    """For each call of one result that is a sum over a factor, or passes one on: the number of
    products in the same sum."""
    terms: dict[fx.Node, int] = {}
    into: dict[fx.Node, fx.Node] = {}  # the call that passes on a node's sum
    for node in plan.captured.calls():
        rule = plan.rules.get(node)
        if rule is None or len(rule.results) != 1:
            continue
        places = plan.places(node)
        given = {
            at: value.node
            for at, value in enumerate(places[: len(rule.operands)])
            if value is not None and value.node in terms
        }
        if given and passes_on(rule, places, frozenset(given)):
            into |= dict.fromkeys(given.values(), node)
            terms[node] = sum(terms[one] for one in set(given.values()))
        elif rule.summed[0]:
            terms[node] = 1
    for node in reversed(terms):
        if node in into:
            terms[node] = terms[into[node]]
    return terms
