"""Propagation: annotations reach every tensor, in both directions, to a fixed point.

A call hands the axes of its operands and results to all tensors with the same factor. Tensors only
gain axes, so this ends. Dimensions that a user has annotated keep their axes. Lower priorities go
first, and in each of them calls that pass dimensions through. Nodes that are alike (`alike`) are
one node here.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import fx

from dlcpd.contract.errors import BadConfig

from .alike import first_alike
from .annotations import Annotation, may_be_stored
from .borders import ENTER, LEAVE
from .capture import Captured, Kind, Value, value_of
from .factors import adds_to, axes_used, dealt, merged
from .marks import MARK
from .meshes import Mesh
from .rules import Rule, rule_of
from .rules.call import call_of, operand_nodes, results_of
from .rules.elementwise import pointwise
from .rules.rule import named, rule
from .sharding import Sharding, Splits, axes_in, axes_of, replaced, whole


class Reason(NamedTuple):
    """Why a dimension is divided: the annotation, and the last call that passed it on."""

    source: str
    through: fx.Node | None = None


@dataclass(slots=True, eq=False)
class Plan:
    """The shardings of all tensors of a graph, the rules of its calls, and the reasons."""

    captured: Captured
    mesh: Mesh
    shardings: dict[Value, Sharding]
    rules: dict[fx.Node, Rule]
    annotated: Mapping[Value, Annotation]
    reasons: dict[tuple[Value, int], Reason] = field(default_factory=dict)
    _places: dict[fx.Node, list[Value | None]] = field(default_factory=dict)

    def places(self, node: fx.Node) -> list[Value | None]:
        """Operands and results of a call, in the order of `Rule.places`. None: not computed."""
        if node not in self._places:
            made = enumerate(results_of(node))
            results = [None if one is None else Value(node, at) for at, one in made]
            self._places[node] = [*map(value_of, operand_nodes(node)), *results]
        return self._places[node]


def plan_of(
    captured: Captured,
    mesh: Mesh,
    annotations: Mapping[str, Annotation],
    inputs: Sequence[Annotation | None],
) -> Plan:
    """`annotations` are those of parameters and buffers by name, `inputs` those of arguments.

    Raises: BadConfig naming the operations without a rule.
    """
    shardings = {}
    for node in captured.graph.nodes:
        for at, one in enumerate(results_of(node) if node.op != "output" else ()):
            if one is not None:
                shardings[Value(node, at)] = whole(one.dim())
    annotated = _annotated(captured, annotations, inputs)
    first = first_alike(captured, annotated)
    plan = Plan(captured, mesh, shardings, _rules(captured, first), annotated)
    _Propagation(plan, first).run()
    return plan


def _rules(captured: Captured, first: Mapping[fx.Node, fx.Node]) -> dict[fx.Node, Rule]:
    """Raises: BadConfig naming every operation without a rule, and a line that calls it."""
    found: dict[fx.Node, Rule] = {}
    lacking: dict[str, str] = {}  # operation to line
    if captured.graph.find_nodes(op="get_attr"):
        lacking["an unregistered tensor"] = "register it as a buffer"
    for node in captured.calls():
        rule = found.get(first[node]) or _rule_at(node, captured)
        if rule is None:
            lacking.setdefault(str(node.target), captured.line_of(node))
        else:
            found[node] = rule
    if lacking:
        named = "; ".join(f"{name} ({line})" for name, line in sorted(lacking.items()))
        raise BadConfig(
            f"spmd has no rule for these operations, or not for their arguments: {named}"
        )
    return found


def _rule_at(node: fx.Node, captured: Captured) -> Rule | None:
    try:
        return _rule(node)
    except BadConfig as error:  # of a user's own rule
        raise BadConfig(f"{error} ({captured.line_of(node)})") from None


def _rule(node: fx.Node) -> Rule | None:
    if node.target == MARK:
        return pointwise(call_of(node))
    if node.target in (ENTER, LEAVE):
        return _of_border(node)
    return rule_of(call_of(node)) if hasattr(node.target, "_schema") else None


def _of_border(node: fx.Node) -> Rule:
    """The whole tensor has the annotation's sharding; inside a region nothing is known. A factor
    has one number of rows: that of the whole tensor."""
    call = call_of(node)
    dims, sizes = named(call.first.shape if node.target == ENTER else call.result.shape)
    return rule([dims if node.target == ENTER else ((),) * len(dims)], [dims], sizes)


def _annotated(
    captured: Captured, annotations: Mapping[str, Annotation], inputs: Sequence[Annotation | None]
) -> dict[Value, Annotation]:
    """The annotations by value: also of gradients, which lie as their parameters do. Results and
    their gradients are whole on every rank."""
    found: dict[Value, Annotation] = {}
    for port in (*captured.inputs, *captured.outputs):
        if port.value is None:
            continue
        said: Annotation | None = None
        if port.kind is Kind.ARGUMENT:
            said = inputs[int(port.name)]
        elif port.kind is Kind.TANGENT:
            dims = len(port.value.shape)
            said = Annotation(whole(dims), (False,) * dims, 0, "gradients of results are whole")
        elif port.kind is not Kind.RESULT:
            said = annotations.get(port.name)
        if said is not None:  # a gradient may be a tangent: ranks hold that as a whole
            found.setdefault(port.value, said)
    for node in captured.calls():
        if node.target in (MARK, ENTER, LEAVE):
            found[Value(node)] = captured.marks[int(node.args[1])]  # type: ignore[arg-type]  # an int
    return found


class _Propagation:
    """One run over a plan. `first`: of each node, the one that stands for it."""

    def __init__(self, plan: Plan, first: Mapping[fx.Node, fx.Node]) -> None:
        self._plan, self._annotated, self._first = plan, plan.annotated, first
        self._stored = {
            port.value
            for port in plan.captured.inputs
            if port.kind in (Kind.PARAMETER, Kind.BUFFER)
        }
        self._places = self._distinct()
        self._calls: dict[Value, list[fx.Node]] = defaultdict(list)  # that touch a value
        for node, places in self._places.items():
            for value in filter(None, places):
                self._calls[value].append(node)
        twins = _twins(plan.captured)
        self._twins = {self._of(one): self._of(other) for one, other in twins.items()}

    def _of(self, value: Value) -> Value:
        return Value(self._first[value.node], value.number)

    def _distinct(self) -> dict[fx.Node, list[Value | None]]:
        """The calls that differ by their tensors, and these."""
        found: dict[fx.Node, list[Value | None]] = {}
        known = set()
        for node in self._plan.rules:
            places = [None if one is None else self._of(one) for one in self._plan.places(node)]
            key = self._first[node], *places
            if key not in known:
                known.add(key)
                found[node] = places
        return found

    def run(self) -> None:
        for priority in sorted({0, *(one.priority for one in self._annotated.values())}):
            for value, said in self._annotated.items():
                if said.priority == priority:
                    self._seed(self._of(value), said)
            for passing in (True, False):
                self._to_fixed_point(
                    [n for n in self._places if self._plan.rules[n].passes or not passing]
                )
        for value in self._plan.shardings:
            self._copy(self._of(value), value)

    def _copy(self, source: Value, to: Value) -> None:
        if source != to:
            self._plan.shardings[to] = self._plan.shardings[source]
            for dim, splits in enumerate(self._plan.shardings[to]):
                if splits:
                    self._plan.reasons[to, dim] = self._plan.reasons[source, dim]

    def _seed(self, value: Value, said: Annotation) -> None:
        self._plan.shardings[value] = said.sharding
        for dim, splits in enumerate(said.sharding):
            if splits:
                self._plan.reasons[value, dim] = Reason(said.source)

    def _to_fixed_point(self, nodes: Sequence[fx.Node]) -> None:
        """Sweeps forward and backward over the calls whose tensors have changed."""
        waiting = set(nodes)
        allowed = frozenset(nodes)
        while waiting:
            for node in (*nodes, *reversed(nodes)):
                if node in waiting:
                    waiting.discard(node)
                    for value in self._pass_on(node):
                        waiting |= allowed.intersection(self._calls[value])

    def _pass_on(self, node: fx.Node) -> list[Value]:
        """Hand axes from tensors to factors and back. Returns the tensors that gained axes."""
        rule, places = self._plan.rules[node], self._places[node]
        by_factor, reasons = self._collected(rule, places)
        changed = []
        for value, dims in zip(places, rule.places, strict=True):
            if value is None:
                continue
            for at, dim in enumerate(dims):
                splits = merged(dim, by_factor, rule.sizes, self._plan.mesh)
                if splits and self._may_gain(value, at, splits):
                    reason = next(reasons[factor] for factor in dim if by_factor.get(factor))
                    changed += self._gain(value, at, splits, Reason(reason.source, node))
        return changed

    def _collected(
        self, rule: Rule, places: Iterable[Value | None]
    ) -> tuple[dict[str, Splits], dict[str, Reason]]:
        """Per factor the most axes that a tensor has for it; an axis serves one factor."""
        found: dict[str, Splits] = {}
        reasons: dict[str, Reason] = {}
        plan = self._plan
        for value, dims in zip(places, rule.places, strict=True):
            if value is None:
                continue
            for at, (dim, splits) in enumerate(zip(dims, plan.shardings[value], strict=True)):
                for factor, part in dealt(dim, splits, rule.sizes, plan.mesh).items():
                    taken = axes_used(found, but=factor)
                    if adds_to(part, found.get(factor, ())) and not taken & set(axes_of(part)):
                        found[factor] = part
                        reasons[factor] = plan.reasons[value, at]
        return found, reasons

    def _may_gain(self, value: Value, dim: int, splits: Splits) -> bool:
        have, size = self._plan.shardings[value], value.shape[dim]
        said = self._annotated.get(value)
        if said is not None and not said.is_open[dim]:
            return False
        if value in self._stored and not may_be_stored(size, splits, self._plan.mesh):
            return False
        others = set(axes_in(replaced(have, dim, ())))
        return (
            adds_to(splits, have[dim])
            and not others & set(axes_of(splits))
            and size >= self._plan.mesh.parts(splits)
        )

    def _gain(self, value: Value, dim: int, splits: Splits, reason: Reason) -> list[Value]:
        """A parameter and its gradient gain together, where both may."""
        twin = self._twins.get(value)
        both = [value] if twin is None or not self._may_gain(twin, dim, splits) else [value, twin]
        for one in both:
            self._plan.shardings[one] = replaced(self._plan.shardings[one], dim, splits)
            self._plan.reasons[one, dim] = reason
        return both


def _twins(captured: Captured) -> dict[Value, Value]:
    """Parameter to gradient, buffer to update, and back."""
    found: dict[Value, Value] = {}
    inputs = {Kind.GRADIENT: Kind.PARAMETER, Kind.UPDATE: Kind.BUFFER}
    for port in captured.outputs:
        if port.kind in inputs and port.value is not None:
            of = captured.input(inputs[port.kind], port.name)
            if of is not None and of.value is not None:
                found |= {of.value: port.value, port.value: of.value}
    return found
