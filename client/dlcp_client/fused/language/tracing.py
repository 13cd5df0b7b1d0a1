"""Captures a function of tensors as a graph of ATen operations, each with the user's line."""

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta

from dlcp_client.user_lines import UserLines, line_of, place_of
from dlcpd.contract.errors import BadConfig

from .layouts import refused


def traced(
    function: Callable[..., Any], examples: Mapping[str, Tensor], constants: Mapping[str, Any]
) -> fx.Graph:
    """The graph; its placeholders have the inputs' names, and its output is a list of nodes.

    Raises: BadConfig naming the line, or node, line and rule.
    """

    def called(*tensors: Tensor) -> list[Tensor]:
        with UserLines():
            results = function(*tensors, **constants)
        listed = list(results) if isinstance(results, (tuple, list)) else [results]
        if not listed or not all(isinstance(one, Tensor) for one in listed):
            raise BadConfig(f"it must return tensors, and returned {type(results).__name__}")
        return listed

    try:
        with preserve_node_meta():
            captured = make_fx(called, tracing_mode="fake")(*examples.values())
    except Exception as error:
        raise BadConfig(
            f"program {function.__name__} cannot be traced{place_of(error)}: {_reason(error)}"
        ) from error
    graph = captured.graph
    _name_inputs(graph, list(examples))
    for node in graph.nodes:
        node.meta = {"val": node.meta.get("val"), "line": line_of(node)}
        if node.op == "call_function":
            _check(node)
    return graph


def _reason(error: Exception) -> str:
    said = (str(error).strip().splitlines() or [""])[0]
    if "allow_non_fake_inputs" in said:
        return "it uses a tensor from outside: make it an input"
    if "data-dependent" in said:
        return "branches, numbers and shapes must not depend on values: use torch.where"
    return said if isinstance(error, BadConfig) else f"{type(error).__name__}: {said}"


def _name_inputs(graph: fx.Graph, names: Sequence[str]) -> None:
    """Give inputs their names, and operations that have such a name another one."""
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    taken = {*names, *(node.name for node in graph.nodes)}
    for node in graph.nodes:
        if node.op != "placeholder" and node.name in names:
            node.name = next(new for at in count(1) if (new := f"{node.name}_{at}") not in taken)
            taken.add(node.name)
    for node, name in zip(inputs, names, strict=True):
        node.name, node.target = name, name


def _check(node: fx.Node) -> None:
    """Refuse what a graph would lose, or not know. Also of nodes that nothing reads: a change in
    place has an effect without a reader."""
    schema = getattr(node.target, "_schema", None)
    if schema is not None and schema.is_mutable:
        raise refused(node, "it changes a tensor in place: use update for inputs")
    value = node.meta["val"]
    for one in value if isinstance(value, (tuple, list)) else [value]:
        if not isinstance(one, Tensor | None):
            raise refused(node, "it reads a value of a tensor: compute with the tensor itself")
        if one is not None and not all(isinstance(size, int) for size in one.shape):
            raise refused(node, "its shape depends on values: use torch.where")
        if one is not None and one.device.type != "cpu":
            raise refused(node, f"it is on {one.device}: programs compute on the CPU")
