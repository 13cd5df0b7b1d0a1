"""Programs on the ranks of a group: fused operations as one operation of the group each, all other
nodes one after another."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, fx

from dlcp_client.group import Group
from dlcpd.contract.errors import BadConfig, RanksDisagree

from .fused_operation import FusedOperation, Values
from .kernels import checked_kernel
from .layouts import Layout, bounds, layout_of, refused, shape_of
from .operations import (
    ALL_GATHER,
    ALL_REDUCE,
    BROADCAST,
    DROPOUT,
    OWN,
    RECEIVE,
    REDUCE_SCATTER,
    SEND,
    UPDATE,
    dropped,
)
from .oracle import check_input, check_mapping, check_names, check_roots, index_of, part
from .program import FusedProgram, check_program


class LoweredProgram:
    """A program on this rank. Sliced inputs are its state: each rank keeps its part of them."""

    def __init__(
        self,
        program: FusedProgram,
        group: Group[Tensor],
        state: Mapping[str, Tensor],
        kernel: str,
    ) -> None:
        self.program, self.group = program.copy(), group
        graph = self.program.graph
        self._inputs = [node for node in graph.nodes if node.op == "placeholder"]
        self._given = [node for node in self._inputs if layout_of(node).kind != "sliced"]
        self._fused: dict[str, FusedOperation] = {}
        for node in graph.nodes:
            if node.meta.get("fused") == node.name:
                self._fused[node.name] = FusedOperation(self.program, node.name, group, kernel)
        # values in memory that the next call writes
        self._reused = {node for node in graph.nodes if node.name in self._fused}
        self._slices: dict[str, Tensor] = {}  # of this rank, of state outside fused operations
        self.load(state)

    def __call__(self, **given: Tensor) -> list[Tensor]:
        """Run the program. Every rank calls it.

        given: whole tensors by name, except sliced inputs. Those that the program updates are
            changed in place. Returns the program's outputs, this rank's slice of sliced ones,
            without new values of sliced inputs: `state` gives these.

        Raises: BadConfig naming the input; the error that ended an operation.
        """
        check_names(self.program, given, [node.name for node in self._given])
        for node in self._given:
            check_input(node, given[node.name])
        self._check_written(given)
        with torch.no_grad():
            return self._run(given)

    @property
    def kernels(self) -> dict[str, str]:
        """The kernel of each fused operation, by the name of its gather."""
        return {name: one.kernel.name for name, one in self._fused.items()}

    @property
    def state_bytes(self) -> int:
        """Bytes of state that this rank keeps; of a fused operation, after its first run."""
        held = sum(one.state_bytes for one in self._fused.values())
        return held + sum(slice_.nbytes for slice_ in self._slices.values())

    def buffer(self, name: str) -> Tensor:
        """The arena's memory of an input that a fused operation reduces or updates. A call that
        gets this tensor does not copy it; a gradient in it is overwritten.

        Raises: BadConfig.
        """
        for one in self._fused.values():
            if name == one.reduced and not one.pieces:
                return one.sums.view(one.shape)
            if name == one.updated:
                return one.into.view(one.shape)
        raise BadConfig(f"{name!r:.80} has no buffer: no fused operation reduces or updates it")

    def state(self, name: str) -> Tensor:
        """All of a sliced input. Every rank calls it.

        Raises: BadConfig; the error that ended the operation.
        """
        for one in self._fused.values():
            if name in one.states:
                return one.whole(name)
        if name not in list(self._slices):
            raise BadConfig(f"{name!r:.80} is not a sliced input of {self.program.name}")
        node = next(one for one in self.program.graph.nodes if one.name == name)
        return _gathered(self.group, node, self._slices[name])

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from whole values of all sliced inputs, equal on all ranks; by default zeros.

        Raises: BadConfig naming the input.
        """
        check_state(self.program, state)
        for node in [node for node in self._inputs if node not in self._given]:
            like = node.meta["val"]
            whole = state.get(node.name)
            if whole is None:
                whole = torch.zeros(like.shape, dtype=like.dtype)
            owner = next((one for one in self._fused.values() if node.name in one.states), None)
            if owner is not None:
                owner.load(node.name, whole)
            else:
                mine = part(whole, layout_of(node), self.group.rank, self.group.size)
                self._slices[node.name] = mine.clone()

    def _check_written(self, given: Mapping[str, Tensor]) -> None:
        """Refuse memory that cannot take a new value, before anything travels."""
        names = dict[int, str]()
        for name in [_target(node) for node in self.program.graph.nodes if node.target is UPDATE]:
            if name not in given or not given[name].numel():
                continue
            x = given[name]
            other = names.setdefault(x.data_ptr(), name)
            if other != name:
                raise BadConfig(
                    f"inputs {other} and {name} are in the same memory, and {self.program.name} "
                    f"updates both: clone one of them"
                )
            expanded = any(n > 1 and not step for n, step in zip(x.shape, x.stride(), strict=True))
            if expanded or (x.is_inference() and not torch.is_inference_mode_enabled()):
                raise BadConfig(
                    f"input {name} is {'expanded' if expanded else 'of inference_mode'}, and "
                    f"{self.program.name} updates it: clone it first"
                )

    # --- nodes --------------------------------------------------------------------------------

    def _run(self, given: Mapping[str, Tensor]) -> list[Tensor]:
        held: Values = {node: given[node.name] for node in self._given}
        numbers = {name: x for name, x in given.items() if not x.dim()}
        late = {one.producer for one in self._fused.values() if one.pieces}
        for node in self.program.graph.nodes:
            if node.op == "placeholder" and node.name in self._slices:
                held[node] = self._slices[node.name]
            elif node.name in self._fused:
                operation = self._fused[node.name]
                held[node] = operation.run(held, numbers)
            elif node.op == "call_function" and "fused" not in node.meta and node not in late:
                if node.target is UPDATE and node.args[1] not in held:
                    continue  # of state of a fused operation
                held[node] = self._meaning(node, held)
        return self._finish(held, given)

    def _meaning(self, node: fx.Node, held: Values) -> Any:
        first: Any = node.args[0] if node.args else None
        group = self.group
        match node.target:
            case target if target is ALL_REDUCE:
                total = held[first].clone(memory_format=torch.contiguous_format)
                group.all_reduce(total, node.args[1]).wait()
                return total
            case target if target is REDUCE_SCATTER:
                return _scattered(group, node, held[first])
            case target if target is ALL_GATHER:
                return _gathered(group, first, held[first])
            case target if target is OWN:
                return part(held[first], layout_of(node), group.rank, group.size)
            case target if target is BROADCAST:
                sent = held[first].clone(memory_format=torch.contiguous_format)
                group.broadcast(sent, _int(node.args[1])).wait()
                return sent
            case target if target is UPDATE:
                return held[node.args[1]]  # type: ignore[index]  # a node
        args, kwargs = _arguments(node, held)
        if node.target is DROPOUT:
            index = index_of(shape_of(node), layout_of(node), group.rank, group.size)
            return dropped(args[0], args[1], args[2], index)
        function: Any = node.target
        return function(*args, **kwargs)

    def _finish(self, held: Values, given: Mapping[str, Tensor]) -> list[Tensor]:
        """Write updates, as nothing reads the old values any more; the outputs."""
        inputs = {**given, **self._slices}
        memory = {x.untyped_storage().data_ptr() for x in inputs.values()}
        updates = [(_target(node), node) for node in held if node.target is UPDATE]
        values = []
        for target, node in updates:
            value: Tensor = held[node]
            if value.untyped_storage().data_ptr() in memory and not _same(value, inputs[target]):
                value = value.clone()  # an update may write to the input that it is a view of
            values.append(value)
        for (target, node), value in zip(updates, values, strict=True):
            if not _same(value, inputs[target]):
                inputs[target].copy_(value)
            held[node] = inputs[target]
        return [
            held[node].clone() if node in self._reused else held[node]
            for node in self.program.outputs
            if not _is_state(node)
        ]


def _int(given: Any) -> int:
    return int(given)


def _target(update: fx.Node) -> str:
    return update.all_input_nodes[0].name


def _is_state(output: fx.Node) -> bool:
    """Whether an output is the new value of a sliced input."""
    return output.target is UPDATE and layout_of(output).kind == "sliced"


def _same(one: Tensor, two: Tensor) -> bool:
    return one.data_ptr() == two.data_ptr() and one.shape == two.shape


def lower(
    program: FusedProgram,
    group: Group[Tensor],
    *,
    state: Mapping[str, Tensor] | None = None,
    kernel: str = "auto",
) -> LoweredProgram:
    """The program on the ranks of a group. Every rank of the group calls it alike.

    Args:
        state: whole initial values of sliced inputs; by default zeros.
        kernel: of fused operations: "auto", "torch", "inductor" or "eager".

    Raises: BadConfig; RanksDisagree naming the first line in which programs differ; ArenaFull.
    """
    state = {} if state is None else state
    check_parts(program, group)
    check_state(program, state)
    checked_kernel(kernel)
    agree(program, group)
    return LoweredProgram(program, group, state, kernel)


def _arguments(node: fx.Node, held: Values) -> tuple[Any, Any]:
    found: Any = fx.node.map_arg((node.args, node.kwargs), lambda one: held[one])
    return found[0], found[1]


def check_state(program: FusedProgram, state: Mapping[str, Tensor]) -> None:
    """Raises: BadConfig unless all are whole values of sliced inputs."""
    check_mapping("state", state)
    inputs = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    for name, whole in state.items():
        if name not in inputs or layout_of(inputs[name]).kind != "sliced":
            raise BadConfig(f"state {name!r:.80} is not a sliced input of {program.name}")
        if whole is not None:
            check_input(inputs[name], whole)


def _sizes(shape: tuple[int, ...], layout: Layout, ranks: int) -> list[int]:
    """Elements of each rank's slice."""
    cuts = bounds(shape[layout.dim], ranks)
    row = 1
    for dim, size in enumerate(shape):
        row *= size if dim != layout.dim else 1
    return [(end - start) * row for start, end in pairwise(cuts)]


def _scattered(group: Group[Tensor], node: fx.Node, x: Tensor) -> Tensor:
    layout = layout_of(node)
    rows = x.movedim(layout.dim, 0).contiguous()
    sizes = _sizes(shape_of(node), layout, group.size)
    mine = torch.empty(sizes[group.rank], dtype=x.dtype)
    group.reduce_scatter(mine, rows.view(-1), node.args[1], sizes).wait()
    return mine.view(-1, *rows.shape[1:]).movedim(0, layout.dim).contiguous()


def _gathered(group: Group[Tensor], node: fx.Node, x: Tensor) -> Tensor:
    layout, shape = layout_of(node), shape_of(node)
    rows = x.movedim(layout.dim, 0).contiguous()
    whole = torch.empty((shape[layout.dim], *rows.shape[1:]), dtype=x.dtype)
    group.all_gather(whole.view(-1), rows.view(-1), _sizes(shape, layout, group.size)).wait()
    return whole.movedim(0, layout.dim).contiguous()


def check_parts(program: FusedProgram, group: Group[Tensor]) -> None:
    """Raises: BadConfig unless it is a program that this group can run."""
    check_program(program)
    if not isinstance(group, Group):
        raise BadConfig(f"group={group!r:.80} is not valid: give a group of a session")
    for node in program.graph.nodes:
        if node.target in (SEND, RECEIVE):
            raise refused(node, "stages run in `simulate` only, not over a group")
    check_roots(program, group.size)


def agree(program: FusedProgram, group: Group[Tensor]) -> None:
    """Every rank calls it. Raises: RanksDisagree naming a rank and the first line that differs from
    rank 0's."""
    mine = program.text.encode()
    digests = every(group, bytes.fromhex(program.fingerprint))
    if len(set(digests)) == 1:
        return
    first, *others = [text.decode().splitlines() for text in every(group, mine)]
    for rank, other in enumerate(others, 1):
        for here, there in zip([*first, "(end)"], [*other, "(end)"], strict=False):
            if here != there:
                raise RanksDisagree(
                    f"rank {rank} of the group has another program than rank 0: {there!r:.200} "
                    f"instead of {here!r:.200}; functions, shapes and transformations must be the "
                    "same"
                )


def every(group: Group[Tensor], mine: bytes) -> list[bytes]:
    """The bytes of every rank, at most 2 GiB in all. Every rank calls it."""
    sizes = torch.empty(group.size, dtype=torch.int64)
    group.all_gather(sizes, torch.tensor([len(mine)])).wait()
    counts = sizes.tolist()
    every = torch.empty(sum(counts), dtype=torch.uint8)
    given = torch.tensor(list(mine), dtype=torch.uint8)
    group.all_gather(every, given, counts).wait()
    return [bytes(one.numpy()) for one in torch.split(every, counts)]
