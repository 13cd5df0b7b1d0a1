"""Partition: the graph that every rank runs on its shards, with the collectives it needs.

Each call runs in the cheapest way (`choice`); its operands are resharded before. A sum over a
divided factor is partial until a call needs its value; linear calls pass partial sums on.
"""

import operator
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from torch import fx

from dlcpd.contract.errors import BadConfig

from .borders import ENTER
from .capture import Kind, Value, value_of
from .choice import Choice, Chooser, Place, summed_axes
from .costs import WORTHWHILE, Costs
from .deep_halos import with_deep_halos
from .divided import DividedCall, emitted
from .emission import Collective, Emitter
from .factors import dealt, sharding_of
from .halos import divided_halos
from .marks import MARK
from .propagation import Plan
from .regions import Regions
from .resharding import Move, steps
from .rules import Rule
from .sharding import Sharding, Splits, whole
from .shared_sums import passes_on, terms_of_sums

REPLICATE_OVER: Final = 16 << 20  # bytes: a larger tensor is seldom meant to be on every rank


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """The graph of a rank: its inputs are `ranks` and those of the captured graph.

    `shardings`: how tensors are computed, which may differ from the plan where that is cheaper."""

    plan: Plan
    graph: fx.Graph
    shardings: Mapping[Value, Sharding]
    collectives: tuple[Collective, ...]
    costs: Costs

    @property
    def text(self) -> str:
        """The program, the same on every rank."""
        return self.graph.python_code("self").src


def partition_of(
    plan: Plan, costs: Costs | None = None, *, replicate_over: int = REPLICATE_OVER
) -> Partition:
    """Divide every call of a planned graph.

    Raises: BadConfig naming the call that would gather an activation of more bytes than
    `replicate_over` to every rank, or an axis that `costs` names and the mesh lacks.
    """
    emitter, costs = Emitter(plan.mesh), costs or Costs()
    costs.check_axes(plan.mesh)
    maker = _Partitioner(plan, emitter, Chooser(plan.mesh, costs), replicate_over)
    for node in plan.captured.graph.nodes:
        maker.add(node)
    divided = emitter.graph, tuple(emitter.collectives)
    price = WORTHWHILE + min(costs.link(axis).latency for axis in plan.mesh.names)
    graph, collectives = with_deep_halos(plan, divided, maker.known(), costs.work_per_s, price)
    return Partition(plan, graph, maker.have, collectives, costs)


def held_as(plan: Plan, kind: Kind, value: Value) -> Sharding:
    """How a rank holds an input: parameters, buffers and annotated arguments as shards, all others
    as a whole."""
    if kind in (Kind.PARAMETER, Kind.BUFFER) or value in plan.annotated:
        return plan.shardings[value]
    return whole(len(value.shape))


def left_as(plan: Plan, kind: Kind, name: str, value: Value) -> Sharding:
    """How a rank gets an output: a gradient lies as its parameter does, an update as its buffer,
    results are whole."""
    inputs = {Kind.GRADIENT: Kind.PARAMETER, Kind.UPDATE: Kind.BUFFER}
    of = plan.captured.input(inputs[kind], name) if kind in inputs else None
    if of is None or of.value is None:
        return whole(len(value.shape))
    return plan.shardings[of.value]


class _Partitioner:
    """Divides one captured node after the other."""

    def __init__(self, plan: Plan, emitter: Emitter, chooser: Chooser, replicate_over: int) -> None:
        self._plan, self._emitter, self._chooser = plan, emitter, chooser
        self._replicate_over = replicate_over
        self.have: dict[Value, Sharding] = {}
        self._forms: dict[Value, dict[Sharding, fx.Node]] = defaultdict(dict)  # once added up
        self._partial: dict[Value, tuple[str, ...]] = {}  # axes over which to add up
        self._kinds = {port.value: port.kind for port in plan.captured.inputs}
        self._terms = terms_of_sums(plan)
        self._regions = Regions(plan, emitter)
        self._again: dict[Value, fx.Node] = {}  # captured calls that may be made once more
        # Not those of parameters: these are gathered for each use, as a whole one takes memory.
        self._stored = {value for value, kind in self._kinds.items() if kind is Kind.PARAMETER}

    def add(self, node: fx.Node) -> None:
        self._emitter.caller = node
        if node.op == "placeholder":
            value = Value(node)
            sharding = held_as(self._plan, self._kinds[value], value)
            self._set(value, sharding, self._emitter.graph.placeholder(node.name))
        elif node.op == "output":
            outs = [
                None if value is None else self._as(value, left_as(self._plan, kind, name, value))
                for kind, name, value in self._plan.captured.outputs
            ]
            self._emitter.graph.output(tuple(outs))
        elif self._regions.has(node):
            self._in_region(node)
        elif node.target is not operator.getitem:
            self._call(node, self._plan.rules[node])

    def known(self) -> dict[fx.Node, tuple[Value, Sharding]]:
        """The captured tensors, and their shardings, of the nodes that are shards of them."""
        each = self._forms.items()
        return {x: (value, lies) for value, forms in each for lies, x in forms.items()}

    def _in_region(self, node: fx.Node) -> None:
        """A node of a manual region works on shards already, and stays as it is."""
        regions = self._regions
        given = {
            one: regions.made.get(one) or self._as(value_of(one), regions.wanted(node, one))
            for one in node.all_input_nodes
        }
        left = regions.copy(node, given)
        if left is not None:
            self._set(Value(node), self._plan.shardings[Value(node)], left.x)
            if left.partial:
                self._partial[Value(node)] = left.partial

    def _set(self, value: Value, sharding: Sharding, x: fx.Node) -> None:
        self.have[value], self._forms[value] = sharding, {sharding: x}

    # --- calls ---

    def _call(self, node: fx.Node, rule: Rule) -> None:
        places = self._plan.places(node)
        operands = [value for value in places[: len(rule.operands)] if value is not None]
        if node.target == MARK:  # the user's sharding, exactly; the call itself does nothing
            want = self._plan.shardings[Value(node)]
            self._set(Value(node), want, self._as(operands[0], want))
            return
        axes = self._carried(rule, operands, places)
        choice = self._chosen(node, places, excluded=axes) if axes else None
        if choice is None or not self._lie_as(operands, choice):
            axes = ()
            for value in operands:
                self._add_up(value, self._plan.shardings[value])
            choice = self._chosen(node, places)
        made = choice.shardings[len(operands) :]
        call = DividedCall(node, rule, made, divided_halos(rule, choice.by_factor, self._plan.mesh))
        given = [
            self._operand(call, at, value, choice.shardings[at])
            for at, value in enumerate(operands)
        ]
        if rule.passes and not rule.halos and len(operands) == len(made) == 1:
            if operands[0] in self._stored:
                self._stored.add(Value(node))
            else:
                self._again[Value(node)] = node
        for at, x in enumerate(emitted(call, given, self._emitter)):
            if x is not None:
                self._set(Value(node, at), made[at], x)
                partial = axes + summed_axes(rule, at, choice.by_factor)
                if partial:
                    self._partial[Value(node, at)] = partial

    def _carried(
        self, rule: Rule, operands: Sequence[Value], places: Sequence[Value | None]
    ) -> tuple[str, ...]:
        """The axes of partial sums that a call passes on. In the call, they then divide nothing
        else."""
        partial = frozenset(at for at, value in enumerate(operands) if value in self._partial)
        axes = {self._partial[operands[at]] for at in partial}
        return axes.pop() if len(axes) == 1 and passes_on(rule, places, partial) else ()

    def _lie_as(self, operands: Sequence[Value], choice: Choice) -> bool:
        """Whether the partial operands lie already as a choice needs them."""
        pairs = zip(operands, choice.shardings, strict=False)
        return all(self.have[one] == want for one, want in pairs if one in self._partial)

    def _chosen(
        self, node: fx.Node, places: Sequence[Value | None], excluded: Sequence[str] = ()
    ) -> Choice:
        rule, found = self._plan.rules[node], []
        for at, (value, dims) in enumerate(zip(places, rule.places, strict=True)):
            if value is None:
                found.append(Place((), (), 0, ()))
            elif at < len(rule.operands):
                item, free = value.tensor.element_size(), self._forms[value].keys()
                found.append(Place(dims, value.shape, item, self.have[value], free))
            else:
                wish, item = self._plan.shardings[value], value.tensor.element_size()
                found.append(Place(dims, value.shape, item, wish))
        terms = self._terms.get(node, 1)
        return self._chooser.choose(rule, found, excluded=excluded, terms=terms)

    def _operand(self, call: DividedCall, at: int, value: Value, want: Sharding) -> fx.Node:
        """An operand as a call needs it: with zeros as padding before that could reach a sum, or
        be used as an index; and with its halo, which has no padding."""
        partial = value in self._partial
        x = self._forms[value][want] if partial else self._as(value, want)
        rule = call.rule
        summed = frozenset().union(*rule.summed)
        added = {factor for factor in call.halos if rule.halos[factor].adds}
        reads = {dim: (axis, halo) for dim, axis, halo in call.reads(at)}
        for dim, factors in enumerate(rule.operands[at]):
            if dim in reads:
                continue
            if at in rule.zeroed or (summed | added) & set(factors):
                x = self._emitter.masked(x, value, dim, want)
        for dim, (axis, halo) in reads.items():
            x = self._emitter.halo_exchange(x, value, (dim, axis), want, halo)
        return x

    # --- shardings ---

    def _as(self, value: Value, want: Sharding) -> fx.Node:
        """A tensor, added up, in a sharding."""
        self._add_up(value, want)
        forms = self._forms[value]
        if want not in forms:
            forms[want] = self._made_again(value, want) or self._moved(value, want)
        return forms[want]

    def _moved(self, value: Value, want: Sharding) -> fx.Node:
        x = self._forms[value][self.have[value]]
        for step in steps(self.have[value], want):
            x = self._emitter.move(x, value, step)
        if not any(want) and any(self.have[value]):
            self._check_whole(value)
        return x

    def _check_whole(self, value: Value) -> None:
        """Parameters are gathered for each use, results and marked tensors because a user says
        so."""
        caller, size = self._emitter.caller, value.tensor.nbytes
        if caller is None or caller.op == "output" or caller.target in (MARK, ENTER):
            return
        if size <= self._replicate_over or value in self._stored:
            return
        captured = self._plan.captured
        raise BadConfig(
            f"{caller.target} needs a whole tensor of {list(value.shape)} on every rank, "
            f"{size:,} bytes, at {captured.line_of(caller)}; the tensor comes from "
            f"{captured.line_of(value.node)}: annotate another dimension of it with mesh_split, "
            f"keep_whole it, or set replicate_over= above {self._replicate_over:,}"
        )

    def _made_again(self, value: Value, want: Sharding) -> fx.Node | None:
        """A tensor from its operand, which is at hand as the call needs it: the transpose of a
        gathered gradient is not gathered too. None: it is not, or its parts would suffice."""
        node = self._again.get(value)
        if node is None or all(step.move is Move.SLICE for step in steps(self.have[value], want)):
            return None
        rule, operand = self._plan.rules[node], self._plan.places(node)[0]
        by_factor: dict[str, Splits] = {}
        for dim, splits in zip(rule.results[0], want, strict=True):
            by_factor |= dealt(dim, splits, rule.sizes, self._plan.mesh)
        shardings = [sharding_of(dims, by_factor, rule, self._plan.mesh) for dims in rule.places]
        have, made = shardings
        if operand is None or operand in self._partial or have is None or made != want:
            return None
        given = self._forms[operand].get(have)
        if given is None:
            return None
        return emitted(DividedCall(node, rule, (want,), {}), [given], self._emitter)[0]

    def _add_up(self, value: Value, wish: Sharding) -> None:
        axes = self._partial.pop(value, ())
        if axes:
            have = self.have[value]
            x = self._forms[value][have]
            x, made = self._emitter.add_up(x, value, have, wish, axes)
            self._set(value, made, x)
