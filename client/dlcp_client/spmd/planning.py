"""From a model and its annotations to the graph of a rank: without processes."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.utils import _pytree as pytree

from dlcpd.contract.errors import BadConfig

from .annotations import Annotation, Dim, annotations_of, checked
from .capture import capture
from .costs import Costs
from .meshes import Mesh
from .partitioner import REPLICATE_OVER, Partition, partition_of
from .propagation import plan_of

Inputs = Sequence[Sequence[Dim] | None]


def plan(
    model: nn.Module,
    mesh: Mesh,
    *,
    example: Sequence[Any],
    inputs: Inputs = (),
    costs: Costs | None = None,
    replicate_over: int = REPLICATE_OVER,
) -> Partition:
    """The program of every rank.

    `example`: arguments of the model with global shapes; `inputs`: for each tensor in them how
    ranks divide it, or None where each rank has the whole; `costs`: of the network;
    `replicate_over`: bytes of the largest activation that may become whole on every rank.

    Raises: BadConfig naming the tensor, the line or the operation.
    """
    said = _of_inputs(pytree.tree_leaves(tuple(example)), mesh, inputs)
    annotated = annotations_of(model, mesh)
    if type(replicate_over) is not int or replicate_over < 0:
        raise BadConfig(
            f"replicate_over={replicate_over!r}: use a whole number of bytes, 0 or more"
        )
    with _without_garbage_collection():
        made = plan_of(capture(model, mesh, example), mesh, annotated, said)
        return partition_of(made, costs, replicate_over=replicate_over)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """A plan keeps nearly all that it makes: to search it for garbage takes a tenth of its time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _of_inputs(leaves: Sequence[Any], mesh: Mesh, inputs: Inputs) -> list[Annotation | None]:
    if inputs and len(inputs) != len(leaves):
        raise BadConfig(
            f"inputs= has {len(inputs)} entries for {len(leaves)} tensors of example=: give one "
            "for each, None where every rank has the whole tensor"
        )
    return [
        None
        if dims is None
        else checked(dims, mesh, leaf.shape, name=f"argument {at}", source=f"inputs[{at}]")
        for at, (leaf, dims) in enumerate(zip(leaves, inputs or [None] * len(leaves), strict=True))
    ]
