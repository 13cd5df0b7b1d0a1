"""The calls between two collectives as one function, which inductor compiles.

Collectives stay where they are: `coalesced` and `halves_of` have chosen when each begins and ends.
"""

import logging
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor, fx, nn

from dlcpd.contract.errors import BadConfig

from .halves import Halves

_log: Final = logging.getLogger("dlcp_client")
_said: Final[list[str]] = []  # why a compiler failed
LEAST: Final = 2  # calls that are worth a function
FIXED: Final[Mapping[str, Any]] = {"fullgraph": True, "dynamic": False}
# In this process: no pool of compilers beside the ranks.
DEFAULT: Final[Mapping[str, Any]] = {"options": {"compile_threads": 1}}


class CompiledCalls(nn.Module):
    """Calls of ATen as one function. It is compiled when it runs first, which takes seconds;
    inductor keeps the result on disk. Where no compiler works, the calls run one by one."""

    def __init__(self, calls: fx.GraphModule, given: Mapping[str, Any]) -> None:
        """`given`: arguments of torch.compile."""
        super().__init__()
        self._calls = calls
        self._run: Any = torch.compile(calls, **FIXED, **(given or DEFAULT))

    def forward(self, *given: Tensor) -> Any:
        """The tensors that later calls and collectives need."""
        if self._run is self._calls:
            return self._calls(*given)
        try:
            return self._run(*given)
        except Exception as error:  # whatever the compiler raises
            found = self._calls(*given)  # which raises an error of the calls themselves
            _say(error)
            self._run = self._calls
            return found


def _say(error: Exception) -> None:
    """Once per process."""
    if not _said:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        _said.append(said)
        _log.warning("spmd: inductor cannot compile, so ATen calls run one by one: %.200s", said)


def compiled(halves: Halves, given: Mapping[str, Any]) -> Halves:
    """The same halves, whose calls between collectives are functions. `given`: arguments of
    torch.compile. Raises: BadConfig naming one that is fixed."""
    if fixed := FIXED.keys() & given.keys():
        raise BadConfig(f"compile({min(fixed)}=...) is fixed: shapes are those of the example")
    forward, backward = (with_functions(one, given) for one in (halves.forward, halves.backward))
    return replace(halves, forward=forward, backward=backward)


def with_functions(half: fx.GraphModule, given: Mapping[str, Any]) -> fx.GraphModule:
    """Each part of a graph between two collectives as one function."""
    made, of = fx.Graph(), dict[fx.Node, fx.Node]()
    functions: dict[str, CompiledCalls] = {}
    for part in _parts(half.graph):
        if len(part) >= LEAST and _is_call(part[0]):
            name = f"calls{len(functions)}"
            calls, operands, left = _function_of(part)
            functions[name] = CompiledCalls(calls, given)
            results = made.call_module(name, tuple(of[node] for node in operands))
            for at, node in enumerate(left):
                of[node] = made.call_function(operator.getitem, (results, at))
        else:
            for node in part:
                of[node] = made.node_copy(node, of.__getitem__)
    return fx.GraphModule(dict(functions), made)


def _parts(graph: fx.Graph) -> list[list[fx.Node]]:
    """All nodes in order; calls that follow each other are one part. The results of a call of
    several results are taken from it at once."""
    parts: list[list[fx.Node]] = []
    taken = set[fx.Node]()
    for node in graph.nodes:
        if node in taken:
            continue
        if not (_is_call(node) and parts and _is_call(parts[-1][0])):
            parts.append([])
        parts[-1].append(node)
        if _is_call(node):
            results = [user for user in node.users if user.target is operator.getitem]
            taken.update(results)
            parts[-1] += results
    return parts


def _is_call(node: fx.Node) -> bool:
    """Whether it is a call of ATen, and not one of random numbers, which torch seeds."""
    tags = getattr(node.target, "tags", None)
    return (
        node.op == "call_function"
        and tags is not None
        and torch.Tag.nondeterministic_seeded not in tags
    )


def _function_of(
    part: Sequence[fx.Node],
) -> tuple[fx.GraphModule, list[fx.Node], list[fx.Node]]:
    """The function of calls, its operands and its results."""
    inside = set(part)
    before = dict.fromkeys(x for node in part for x in node.all_input_nodes)
    given = [node for node in before if node not in inside]
    left = [node for node in part if any(user not in inside for user in node.users)]
    calls, held = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in given:
        held[node] = calls.placeholder(node.name)
    for node in part:
        held[node] = calls.node_copy(node, held.__getitem__)
    calls.output(tuple(held[node] for node in left))
    return fx.GraphModule({}, calls), given, left
