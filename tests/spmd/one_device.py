"""Compares a divided graph, run for all ranks in one process, with the model on one device."""

from typing import Any

import torch
from torch import Tensor, nn

from dlcp_client.spmd.capture import Kind, Port
from dlcp_client.spmd.collectives import Position, all_gather
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.partitioner import Partition, held_as, left_as
from dlcp_client.spmd.sharding import Sharding
from dlcp_client.spmd.simulation import simulate

Outputs = dict[tuple[Kind, str], Tensor]


def shards(x: Tensor, sharding: Sharding, mesh: Mesh, rank: int) -> Tensor:
    position = Position(mesh, rank)
    for dim, splits in enumerate(sharding):
        for split in splits:
            assert split.outer == 1
            x = position.shard(x, split.axis, dim)
    return x


def together(each: list[Tensor], sharding: Sharding, mesh: Mesh, shape: tuple[int, ...]) -> Tensor:
    """The whole tensor of the shards of all ranks, every one of which is read."""
    for dim, splits in enumerate(sharding):
        for at in range(len(splits) - 1, -1, -1):
            axis, rows = splits[at].axis, mesh.local_size(shape[dim], splits[:at])
            members = [mesh.members(rank, axis) for rank in range(mesh.ranks)]
            each = [all_gather([each[one] for one in group], dim, rows)[0] for group in members]
    for one in each[1:]:
        if not torch.equal(one, each[0]):  # which is faster, and holds but for NaN
            torch.testing.assert_close(one, each[0], rtol=0, atol=0, equal_nan=True)
    return each[0]


def run(partition: Partition, model: nn.Module, arguments: tuple[Tensor, ...]) -> Outputs:
    """Results and gradients of all ranks, put together; tangents are ones."""
    plan, mesh = partition.plan, partition.plan.mesh
    given: list[list[Any]] = [[] for _ in range(mesh.ranks)]
    for kind, name, value in plan.captured.inputs:
        assert value is not None
        x = _whole(kind, name, model, arguments, value.shape).to(value.tensor.dtype)
        for rank in range(mesh.ranks):
            given[rank].append(shards(x, held_as(plan, kind, value), mesh, rank))
    outputs = simulate(partition.graph, mesh, given)
    found: Outputs = {}
    for at, (kind, name, value) in enumerate(plan.captured.outputs):
        if value is not None:
            sharding = left_as(plan, kind, name, value)
            each = [one[at] for one in outputs]
            found[kind, name] = together(each, sharding, mesh, value.shape)
    return found


def _whole(
    kind: Kind, name: str, model: nn.Module, arguments: tuple[Tensor, ...], shape: Any
) -> Tensor:
    match kind:
        case Kind.PARAMETER:
            return model.get_parameter(name).detach()
        case Kind.BUFFER:
            return model.get_buffer(name)
        case Kind.ARGUMENT:
            return arguments[int(name)]
    return torch.ones(shape)


def expected(model: nn.Module, arguments: tuple[Tensor, ...]) -> Outputs:
    """The same of the model on one device."""
    model.zero_grad()
    before = {name: x.clone() for name, x in model.named_buffers()}
    results = model(*arguments)
    each = results if isinstance(results, tuple) else (results,)
    torch.autograd.backward(
        [one for one in each if one.requires_grad],
        [torch.ones_like(one) for one in each if one.requires_grad],
    )
    found = {(Kind.RESULT, str(at)): one.detach() for at, one in enumerate(each)}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            found[Kind.GRADIENT, name] = parameter.grad
    for name, x in model.named_buffers():
        if not torch.equal(x, before[name]):
            found[Kind.UPDATE, name] = x.clone()
            x.copy_(before[name])
    return found


def assert_equal(partition: Partition, model: nn.Module, arguments: tuple[Tensor, ...]) -> None:
    found, right = run(partition, model, arguments), expected(model, arguments)
    assert found.keys() == right.keys()
    # Sums of large numbers in another order differ by their rounding.
    largest = max(1.0, *(float(one.abs().max()) for one in right.values()))
    for (kind, name), one in right.items():
        apart = f"{kind.value} {name}"
        torch.testing.assert_close(
            found[kind, name], one, rtol=1e-9, atol=1e-9 * largest, msg=apart
        )


def counts(partition: Partition) -> dict[str, int]:
    """The collectives of a graph by kind."""
    kinds = [one.kind for one in partition.collectives]
    return {kind: kinds.count(kind) for kind in sorted(set(kinds))}


def port(partition: Partition, kind: Kind, name: str) -> Port:
    found = partition.plan.captured.input(kind, name)
    assert found is not None
    return found
