"""Why a plan is as fast as it is: the links that limit it, its gain, and the proof, in words."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from dlcpd.planning.bounds import Bound
from dlcpd.planning.classes import classes_of_hosts
from dlcpd.planning.graph import DirectedLink, Graph
from dlcpd.planning.pair_loads import Loads, TooLarge, pair_loads
from dlcpd.planning.plan import TreePlan, direct_rate
from dlcpd.planning.rates import in_words
from dlcpd.planning.trees import both_ways

FULL: Final = 0.999  # of a link's time: it limits the plan
NOTHING: Final = 1.005  # a gain below is written as 1.00
SHOWN: Final = 6  # names in a sentence; the rest is counted


@dataclass(frozen=True, slots=True)
class LimitingLink:
    """A link that trees fill, and how many times the tensor crosses it."""

    link: DirectedLink
    times: float


@dataclass(frozen=True, slots=True)
class PlanReasons:
    """`direct_rate`: with an equal share for each host, bit/s; 0: hosts have no route then.

    `gain`: the plan's rate in units of that, 1 without one. `limits`: the links that limit the
    plan, none for one host and for networks too large to say.
    """

    direct_rate: float
    gain: float
    why: str
    limits: tuple[LimitingLink, ...]


def reasons(graph: Graph, plan: TreePlan) -> PlanReasons:
    """The reasons of a plan for all_reduce."""
    if plan.bound is None:
        return PlanReasons(0.0, 1.0, f"gain 1.00: {plan.note}", ())
    try:
        pairs = pair_loads(graph)
    except TooLarge:
        direct = direct_rate(graph)
        gain = plan.packing.rate / direct if direct else 1.0
        why = f"gain {gain:.2f}: the network is too large to name the links that limit the plan"
        return PlanReasons(direct, gain, why, ())
    direct, count = direct_rate(graph), len(graph.hosts)
    carried = sum(
        (tree.share * pairs.of_ways(both_ways(tree.parents)) for tree in plan.packing.trees),
        np.zeros(len(graph.links)),
    )
    limits = _limits(graph, carried)
    if not direct:
        why = "no comparison: an equal share for each host needs routes through switches alone"
        return PlanReasons(direct, 1.0, why, limits)
    gain = plan.packing.rate / direct
    equal = pairs.loads.sum(axis=(0, 1)) * 2 / count
    return PlanReasons(direct, gain, _why(graph, gain, equal, carried), limits)


def certificate(graph: Graph, bound: Bound) -> str:
    """The proof of a bound in words."""
    groups = [_named([graph.name(host) for host in sorted(graph.members(s))]) for s in bound.sides]
    together = in_words(float(bound.rate * bound.times))
    sides = groups[0] if len(groups) == 1 else f"the {len(groups)} groups {_listed(groups)}"
    return (
        f"no schedule is faster than {in_words(float(bound.rate))}: the links out of {sides} carry "
        f"{together} together, and the tensor must pass them {in_times(float(bound.times))}"
    )


def link_name(graph: Graph, link: DirectedLink) -> str:
    """Names of both ends of a link."""
    return f"{graph.name(link.source)} -> {graph.name(link.target)}"


def _limits(graph: Graph, carried: Loads) -> tuple[LimitingLink, ...]:
    busy = [load / link.rate for load, link in zip(carried, graph.links, strict=True)]
    return tuple(
        LimitingLink(link, float(load))
        for link, load, part in zip(graph.links, carried, busy, strict=True)
        if part >= FULL * max(busy)
    )


def _why(graph: Graph, gain: float, equal: Loads, carried: Loads) -> str:
    """`equal` and `carried`: tensors over each link, of equal shares and of the plan."""
    rates = np.array([link.rate for link in graph.links])
    slowest = int(np.argmax(equal / rates))
    link = graph.links[slowest]
    named = f"{link_name(graph, link)} ({in_words(link.rate)})"
    if gain >= NOTHING:
        return (
            f"gain {gain:.2f}: with an equal share for each host the tensor crosses {named} "
            f"{in_times(equal[slowest])}, with these trees {in_times(carried[slowest])}"
        )
    if len(classes_of_hosts(graph)) == 1:
        return "gain 1.00: all hosts are equal, direct is optimal"
    return f"gain {gain:.2f}: {named} limits equal shares as much as any trees, direct is optimal"


def in_times(value: float) -> str:
    """How often something happens."""
    text = f"{value:.4g}"
    return {"1": "once", "2": "twice"}.get(text, f"{text} times")


def _named(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return "{" + ", ".join(names[:SHOWN]) + more + "}"


def _listed(groups: list[str]) -> str:
    more = f" and {len(groups) - SHOWN} more" if len(groups) > SHOWN else ""
    return f"{', '.join(groups[:SHOWN])}{more}"
