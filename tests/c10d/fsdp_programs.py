"""What one rank does with our hooks for FSDP2."""

from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from dlcp_client import Guard, bounded, exact, fsdp
from dlcp_client.hooks import exact_steps as schedule
from dlcpd.contract.errors import BadConfig, BadPolicy
from tests.c10d.programs import Arrays, model, parameters, sharded, train


def large(size: int, **options: Any) -> nn.Module:
    """Two blocks of more than 1 MiB, with norms and biases, and an embedding."""
    torch.manual_seed(1)
    block = [nn.Linear(600, 601), nn.LayerNorm(601), nn.Tanh(), nn.Linear(601, 600)]
    net = nn.Sequential(nn.Embedding(32, 600), nn.Sequential(*block), nn.Linear(600, 601))
    mesh = init_device_mesh("cpu", (size,))
    for part in net:
        fully_shard(part, mesh=mesh, **options)
    fully_shard(net, mesh=mesh, **options)
    return net


def step(net: nn.Module, rank: int, number: int, *, accumulate: bool = False) -> None:
    torch.manual_seed(100 * number + rank)
    words, targets = torch.randint(0, 32, (16, 4)), torch.randn(16, 4, 601)
    if not accumulate:
        net.zero_grad()
    (net(words) - targets).square().mean().backward()


def descend(net: nn.Module) -> None:
    with torch.no_grad():
        for p in net.parameters():
            assert p.grad is not None
            p.sub_(p.grad, alpha=0.1)


def exact_hooks(rank: int, size: int) -> None:
    """Bit for bit what FSDP2 computes without hooks: also accumulated, clipped and converted."""
    mixed = MixedPrecisionPolicy(reduce_dtype=torch.bfloat16)
    for options in ({}, {"mp_policy": mixed}):
        plain, ours = large(size, **options), large(size, **options)
        handle = fsdp.register(ours, exact())
        for number in range(3):
            for net in (plain, ours):
                step(net, rank, number)
                step(net, rank, number + 10, accumulate=True)
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                descend(net)
        assert handle.step == 6
        found, expected = parameters(ours), parameters(plain)
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def watched(rank: int, size: int) -> list[dict[str, Any]]:
    """Reports of a guard that tightens at once, after each step."""
    net, reports = large(size), []
    guard = Guard(every=1, max_error=0.0, floor=0.15)
    handle = fsdp.register(net, bounded(0.2), warmup_steps=2, guard=guard)
    assert handle.guard is not None
    for number in range(5):
        step(net, rank, number)
        descend(net)
        reports.append(handle.guard.report())
    return reports


def compared(rank: int, size: int) -> dict[str, Any]:
    """Exact steps among those of a guarded training, more often than usual."""
    net, exact_steps = large(size), []
    with patch.object(schedule, "EVERY", 5):
        guard = Guard(every=100, max_error=10.0)
        handle = fsdp.register(net, bounded(0.2), warmup_steps=2, guard=guard)
        for number in range(28):
            step(net, rank, number)
            descend(net)
            if handle.rules.exact_step:
                exact_steps.append(handle.step)
    said, found = handle.summary(), handle.totals.exchange
    assert found is not None and str(found) in said.splitlines()
    return {"exact": exact_steps, "bounded": found.bounded, "compared": found.exact}


def overlapped(rank: int, size: int) -> None:
    """Reductions are left open by their blocks, and none is open when backward() returns."""
    net = large(size)
    handle = fsdp.register(net, exact())
    left_open: list[int] = []
    add = handle.add

    def listening(work: Any) -> None:
        left_open.append(1)
        add(work)

    handle.add = listening  # type: ignore[method-assign]
    step(net, rank, 0)
    assert len(left_open) == 3  # of three blocks
    step(net, rank, 1, accumulate=True)
    assert len(left_open) == 3  # sums are read at once
    assert handle.step == 2


def _note_gradient(found: list[Any], parameter: Any) -> None:
    found.append(parameter.grad.to_local().clone())


def seen_by_hooks(rank: int, size: int) -> None:
    """A hook on a parameter sees the gradient that FSDP2 computes without our hooks."""
    seen: list[list[Any]] = [[], []]
    for net, found in zip((large(size), large(size)), seen, strict=True):
        if found is seen[1]:
            fsdp.register(net, exact())
        for parameter in net.parameters():
            watched: Any = parameter
            watched.register_post_accumulate_grad_hook(partial(_note_gradient, found))
        step(net, rank, 0)
    assert len(seen[0]) == 9
    assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True))


def bounded_hooks(rank: int, size: int) -> dict[str, Any]:
    """Under loss: what was waived, and the weights that every rank gathers."""
    net = large(size)
    handle = fsdp.register(net, bounded(0.2), warmup_steps=2)
    asked: list[tuple[int, str, str, int, int]] = []
    reduce = handle.group.reduce_scatter

    def listening(*arguments: Any, **more: Any) -> Any:
        exempt = sum(stop - start for start, stop in more["exempt"])
        asked.append((handle.step, more["policy"].mode, more["name"], exempt, len(more["layers"])))
        return reduce(*arguments, **more)

    handle.group.reduce_scatter = listening  # type: ignore[method-assign]
    for number in range(6):
        step(net, rank, number)
        descend(net)
    told = handle.metrics()
    assert told["steps"] == 6 and told["waived"] == handle.ledger.waived
    assert 0 < told["bounded_bytes"] < told["bytes"]
    assert told["exposed_s"] > 0 and told["step_s"] > 0
    assert "all " in handle.summary(all_ranks=True)
    return {"asked": asked, "waived": handle.ledger.waived, "weights": parameters(net)}


def coded_hooks(rank: int, size: int) -> dict[str, Any]:
    """With a codec after the first step: how far from FSDP2's own, and every rank's weights."""
    plain, ours = large(size), large(size)
    fsdp.register(ours, exact(codec="int8"), warmup_steps=1)
    for number in range(5):
        for net in (plain, ours):
            step(net, rank, number)
            descend(net)
    found, expected = parameters(ours), parameters(plain)
    apart = max(float(np.abs(found[name] - expected[name]).max()) for name in expected)
    return {"apart": apart, "weights": found}


def refused(rank: int, size: int) -> None:
    mesh = init_device_mesh("cpu", (size,))
    with pytest.raises(BadPolicy):
        fsdp.register(sharded(mesh), 0.01)  # type: ignore[arg-type]
    with pytest.raises(BadConfig, match="fully_shard"):
        fsdp.register(model())
    gloo = dist.new_group(backend="gloo")
    assert gloo is not None
    other = init_device_mesh("cpu", (size,), backend_override={0: "gloo"})
    with pytest.raises(BadConfig, match="another backend"):
        fsdp.register(sharded(other))


def replicated(rank: int, size: int) -> Arrays:
    """HSDP over 2 x 2 ranks: the second reduction needs the first at once."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    net = sharded(mesh)
    with pytest.raises(BadConfig, match="with hybrid sharding"):
        fsdp.register(net, bounded(0.1), guard=Guard())
    fsdp.register(net, exact())
    return train(net, rank)
