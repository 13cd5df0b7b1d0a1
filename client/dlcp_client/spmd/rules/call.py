"""One call of an ATen operation in a captured graph, without the graph."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx


@dataclass(frozen=True, slots=True)
class Call:
    """`operands`: the tensors among the arguments, in order; `names`: the schema's names of the
    arguments that they belong to; `results`: None stands for a result that is not computed."""

    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    operands: tuple[torch.Tensor, ...]
    names: tuple[str, ...]
    results: tuple[torch.Tensor | None, ...]

    def option(self, name: str) -> Any:
        """The value of an argument, or its default.

        Raises: KeyError if the operation has no such argument.
        """
        for at, argument in enumerate(self.target._schema.arguments):
            if argument.name == name:
                if at < len(self.args):
                    return self.args[at]
                return self.kwargs.get(name, argument.default_value)
        raise KeyError(name)

    def dim(self, name: str, dims: int) -> int:
        """An argument that is a dimension, counted from the front."""
        return int(self.option(name)) % max(dims, 1)

    @property
    def first(self) -> torch.Tensor:
        """The first operand."""
        return self.operands[0]

    @property
    def result(self) -> torch.Tensor:
        """The first result that is computed."""
        return next(one for one in self.results if one is not None)


def operand_nodes(node: fx.Node) -> list[fx.Node]:
    """The nodes of tensors among the arguments, in order, with repetitions."""
    return [one for _, one in _operands(node)]


def _operands(node: fx.Node) -> list[tuple[str, fx.Node]]:
    """The same, each with the schema's name of its argument."""
    found: list[tuple[str, fx.Node]] = []
    schema = node.target._schema.arguments  # type: ignore[union-attr]  # an OpOverload
    named = [(a.name, value) for a, value in zip(schema, node.args, strict=False)]
    for name, value in [*named, *node.kwargs.items()]:

        def keep(one: fx.Node, name: str = name) -> fx.Node:
            if isinstance(one.meta.get("val"), torch.Tensor):
                found.append((name, one))
            return one

        fx.node.map_arg(value, keep)
    return found


def results_of(node: fx.Node) -> tuple[torch.Tensor | None, ...]:
    """Fake tensors of the results; results that are not tensors are left out."""
    value = node.meta.get("val")
    if isinstance(value, list | tuple):
        return tuple(one if isinstance(one, torch.Tensor) else None for one in value)
    return (value,) if isinstance(value, torch.Tensor) else ()


def call_of(node: fx.Node) -> Call:
    """The call of a node whose target is an ATen operation."""
    found = _operands(node)
    return Call(
        target=node.target,
        args=tuple(node.args),
        kwargs=dict(node.kwargs),
        operands=tuple(one.meta["val"] for _, one in found),
        names=tuple(name for name, _ in found),
        results=results_of(node),
    )
