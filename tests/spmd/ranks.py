"""What one rank does with a divided model over real groups."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.tensor import DTensor

from dlcp_client.c10d import ProcessGroup
from dlcp_client.group import Group
from dlcp_client.products import ReducedProduct
from dlcp_client.spmd import runtime
from dlcp_client.spmd.annotations import annotate
from dlcp_client.spmd.collectives import MEANING
from dlcp_client.spmd.costs import Costs
from dlcp_client.spmd.explanation import explain
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.module import Partitioned, measured, partition
from dlcp_client.spmd.runtime import SMALL, GroupRanks, check_equal, device_mesh
from dlcpd.contract.errors import BadConfig, RanksDisagree
from tests.spmd.models import TENSOR_PARALLEL, convolutions, gpt, perceptron
from tests.spmd.regions import layer, rows_of_x

STEPS = 3


def everything(rank: int, size: int) -> None:
    """In one world, as processes are dear."""
    collectives(rank, size)
    joined(rank, size)
    in_the_arena(size)
    trained(size)
    accumulated(size)
    timed(size)
    if size != 3:  # of 4 heads
        products_in_pieces(size)
    if size == 2:
        mistakes(rank, size)
        compiled(size)
    if size == 3:
        several_differ(rank)


def several_differ(rank: int) -> None:
    with pytest.raises(RanksDisagree, match="ranks 1, 2 have other programs than rank 0: '2' on"):
        check_equal(f"{min(rank, 1) + 1}")


def collectives(rank: int, size: int) -> None:
    """The groups do what the table of meanings says, also unevenly, and with booleans."""
    mesh = Mesh({"a": size})
    ranks = GroupRanks(mesh, device_mesh(mesh, "cpu"))
    every = [torch.arange(2 * 5 * 3).view(2, 5, 3).double() * (one + 1) for one in range(size)]
    calls: list[tuple[str, Sequence[Any]]] = [
        ("all_gather", (1, 5 * size - 1)),
        ("all_reduce", ()),
        ("reduce_scatter", (1,)),
        ("all_to_all", (2, 1, 3 * size - 1)),
        ("halo_exchange", (1, (5 * size - 1, 1, -1, 3, 5 * size - 1), 7.0)),
        ("halo_exchange", (1, (5 * size, 1, 2, 1, 5 * size, True), 0.0)),
        ("halo_reduce", (1, (5 * size + 2, 2, -1, 3, 2 * size))),
        ("halo_exchange", (1, (5 * size, 1, 0, 1, 5 * size), 7.0)),
        ("halo_exchange", (1, (5 * size - 1, 1, 0, 1, 5 * size - 1), 7.0)),
        ("halo_reduce", (1, (5 * size, 1, 0, 1, 5 * size))),
        ("halo_reduce", (1, (5 * size - 1, 1, 0, 1, 5 * size - 1))),
    ]
    for method, options in calls:
        given = [one % 7 == 0 for one in every] if method == "all_gather" else every
        for each in (every, given):
            right = MEANING[method](each, *options)[rank]
            found = getattr(ranks, method)(each[rank], "a", *options)
            assert found.dtype == right.dtype
            assert torch.equal(found, right), method


def joined(rank: int, size: int) -> None:
    """Several tensors in one operation have the results of one operation each."""
    mesh = Mesh({"a": size})
    ranks = GroupRanks(mesh, device_mesh(mesh, "cpu"))
    torch.manual_seed(rank)
    given = [torch.randn(5, 3).double(), torch.randn(2, 7).double(), torch.randn(()).double()]
    count, mean = torch.tensor(2**40 + rank), torch.tensor(0.5 * rank)
    for found, x in zip(ranks.sum_numbers([count, mean], "a"), (count, mean), strict=True):
        assert found.dtype == x.dtype and torch.equal(found, ranks.all_reduce(x, "a"))
    pairs = [(given[0], 0), (given[1], 1)]
    for found, x in zip(
        ranks.begin_sums(given, "a", ["back", "front", "middle"]).end(), given, strict=True
    ):
        torch.testing.assert_close(found, ranks.all_reduce(x, "a"), rtol=1e-12, atol=1e-12)
    pending = ranks.begin_scatters(given[:2], "a", [0, 1], ["back", "front"])
    for found, (x, dim) in zip(pending.end(), pairs, strict=True):
        right = ranks.reduce_scatter(x, "a", dim)
        torch.testing.assert_close(found, right, rtol=1e-12, atol=1e-12)
    sizes = [5 * size - 1, 7 * size - 1]
    pending = ranks.begin_gathers(given[:2], "a", [0, 1], sizes)
    for found, (x, dim), rows in zip(pending.end(), pairs, sizes, strict=True):
        assert torch.equal(found, ranks.all_gather(x, "a", dim, rows))
    mixed = [given[0] > 0, torch.arange(6).view(2, 3) + rank, given[1].float()]
    pending = ranks.begin_gathers(mixed, "a", [0, 1, 0], [5 * size, 3 * size - 1, 2 * size])
    shapes = [(mixed[0], 0, 5 * size), (mixed[1], 1, 3 * size - 1), (mixed[2], 0, 2 * size)]
    for found, (x, dim, rows) in zip(pending.end(), shapes, strict=True):
        assert torch.equal(found, ranks.all_gather(x, "a", dim, rows))
    (flags,) = ranks.begin_gathers([given[0] > 0], "a", [0], [5 * size]).end()
    assert torch.equal(flags, ranks.all_gather(given[0] > 0, "a", 0, 5 * size))


class MeanSquare(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(x)
        return found.square().mean()


def in_the_arena(size: int) -> None:
    """Gradients stay where the operation on them has put its results, while there is room."""
    mesh = Mesh({"data": size})
    devices = device_mesh(mesh, "cpu")
    group = devices.get_group("data")
    if not isinstance(group, ProcessGroup):
        return
    assert isinstance(group.group, Group)
    session = group.group.session
    model, x = MeanSquare(nn.Linear(64, SMALL // 256)), torch.ones(size, 64)
    parallel = partition(model, mesh, example=(x,), inputs=[("data", None)])

    def places() -> list[int]:
        parallel.zero_grad()
        parallel(x[:1]).backward()
        pointers = [one.grad.data_ptr() for one in parallel.parameters() if one.grad is not None]
        assert len(pointers) == 2
        return [session._connection.arena.offset_of(one) for one in pointers]  # noqa: SLF001

    assert min(places()) >= 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(session), "arena_bytes", SMALL)
        assert max(places()) < 0
    assert min(places()) >= 0  # the first ones are free again


def trained(size: int) -> None:
    """Some steps of AdamW with clipping: every parameter and loss as on one device."""
    batch: list[Any] = [("data", None), ("data", None)]
    uneven: list[Any] = [("data", None), ("data",)]
    _train(perceptron(), Mesh({"model": size}), {"up.weight": ("model", None)}, [])
    _train(perceptron(), Mesh({"data": size}), {}, uneven)
    _train(perceptron(), Mesh({"data": size}), {"*.weight": ("data", None)}, uneven, priority=1)
    width: list[Any] = [(None, None, None, "space"), None]
    _train(convolutions(), Mesh({"space": size}), {}, width)
    for name in ("gathered", "ring"):
        mesh = Mesh({"model": size})
        _train((layer(name, mesh), (rows_of_x(),)), mesh, {}, [None])
    if size % 2 == 0:
        sizes = {"data": size // 2, "model": 2}
        _train(gpt(), Mesh(sizes), TENSOR_PARALLEL, batch)


def _train(
    made: Any,
    mesh: Mesh,
    patterns: Mapping[str, Any],
    inputs: Sequence[Any],
    *,
    priority: int = 0,
) -> None:
    model, arguments = made
    annotate(model, mesh, patterns, priority=priority)
    right = {name: x.clone() for name, x in model.state_dict().items()}
    if dist.get_rank():
        nn.utils.vector_to_parameters(torch.ones(10**5).double(), model.parameters())
    parallel = partition(model, mesh, example=arguments, inputs=inputs)
    model.load_state_dict(right)  # of rank 0, with which the parts begin
    kinds = {isinstance(one, DTensor) for one in parallel.parameters()}
    assert len(kinds) == 1 and (kinds == {True} or not patterns)
    assert parallel.state_dict().keys() == model.state_dict().keys()
    pairs = zip(arguments, inputs or [()] * 2, strict=True)
    local = [shard(x, dims or (), mesh) for x, dims in pairs]
    optimizers = [torch.optim.AdamW(one.parameters(), lr=0.01) for one in (model, parallel)]
    for _ in range(STEPS):
        losses = []
        for one, optimizer, given in zip(
            (model, parallel), optimizers, (arguments, local), strict=True
        ):
            optimizer.zero_grad()
            loss = one(*given)
            loss.backward()
            nn.utils.clip_grad_norm_(one.parameters(), 0.5)
            optimizer.step()
            losses.append(loss.detach())
        torch.testing.assert_close(losses[0], losses[1], rtol=1e-9, atol=1e-9)
    _check_equal(parallel, model)
    _reloaded(deepcopy(parallel), model)


def full(x: Tensor) -> Tensor:
    """The whole tensor. Every rank calls it."""
    return x.full_tensor() if isinstance(x, DTensor) else x


def shard(x: Tensor, dims: Sequence[str | None], mesh: Mesh) -> Tensor:
    """This rank's rows, by torch's own rule."""
    at = mesh.coordinates(dist.get_rank())
    for dim, axis in enumerate(dims):
        if axis:
            parts = x.chunk(mesh.sizes[axis], dim)
            x = parts[at[axis]] if at[axis] < len(parts) else x.narrow(dim, 0, 0)
    return x


class TwoBiases(nn.Module):
    """Two biases with one gradient; a parameter is a result, too."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 3).double(), nn.Linear(4, 3).double()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return (self.a(x) + self.b(2 * x)).square().mean(), self.a.weight


def accumulated(size: int) -> None:
    """The gradients of two backward passes, clipped, are those of one device."""
    torch.manual_seed(0)
    model, x, mesh = TwoBiases(), torch.randn(2 * size, 4).double(), Mesh({"data": size})
    inputs = [("data", None)]
    parallel = partition(model, mesh, example=(x,), inputs=inputs)
    assert not any(isinstance(x, DTensor) for x in parallel.parameters()), "nothing is divided"
    for one, given in ((model, x), (parallel, shard(x, inputs[0], mesh))):
        for _ in range(2):
            loss, weight = one(given)
            (loss + weight.square().sum()).backward()
        nn.utils.clip_grad_norm_(one.parameters(), 0.1)
    for name, right in model.named_parameters():
        gradient = parallel.get_parameter(name).grad
        torch.testing.assert_close(gradient, right.grad, rtol=1e-9, atol=1e-9)


def timed(size: int) -> None:
    """Costs that are measured are those of all ranks; each collective of a step has a time."""
    model, arguments = gpt()
    mesh, inputs = Mesh({"data": size}), [("data", None), ("data", None)]
    parallel = partition(model, mesh, example=arguments, inputs=inputs, costs="measured")
    costs = parallel._program.partition.costs  # noqa: SLF001
    check_equal(str(costs))
    assert 0 < costs.link("data").latency < 10 and costs.link("data").bytes_per_s > 1e4
    given = [shard(x, dims, mesh) for x, dims in zip(arguments, inputs, strict=True)]

    def step() -> None:
        parallel(*given).backward()

    def shown() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(explain(parallel, "json"))
        return found

    step()
    assert "measured (ms)" not in shown()["collectives"][0]
    for steps in (2, 1):  # times begin anew
        with measured(parallel):
            for _ in range(steps):
                step()
        times = parallel._program.times  # noqa: SLF001
        assert times.of.keys() == set(parallel._program.partition.collectives)  # noqa: SLF001
        assert {len(seconds) for seconds in times.of.values()} == {steps}
    before = times.saved
    step()
    assert {len(seconds) for seconds in times.of.values()} == {1}, "not timed"
    found = shown()
    assert all(row["measured (ms)"] >= 0 for row in found["collectives"])
    assert {row["memory of a rank"]: row["bytes"] for row in found["memory"]} == {
        "parameters": (whole := sum(x.nbytes for x in model.parameters())),
        "buffers": 0,
        "gradients": whole,
        "saved by a forward pass": before,
    }
    with _saved_bytes() as saved:
        parallel(*given)
    assert before == saved([*parallel.parameters(), *given])
    with pytest.raises(BadConfig, match=r"costs='fast' is not valid: give Costs, or \"measured\""):
        partition(model, mesh, example=arguments, inputs=inputs, costs="fast")


def products_in_pieces(size: int) -> None:
    """Sums of 512 KiB that take long, after their products: in pieces over dlcpd."""
    model, arguments = gpt(256)
    mesh, made = Mesh({"model": size}), []
    annotate(model, mesh, TENSOR_PARALLEL)
    parallel = partition(model, mesh, example=arguments, costs=Costs(bytes_per_s=1e6))
    with pytest.MonkeyPatch.context() as patch:

        def product(*given: Any, **options: Any) -> ReducedProduct:
            made.append(options["pieces"])
            return ReducedProduct(*given, **options)

        patch.setattr(runtime, "ReducedProduct", product)
        _check_step(parallel, model, arguments)
    over_dlcpd = isinstance(device_mesh(mesh, "cpu").get_group("model"), ProcessGroup)
    assert set(made) == ({2} if over_dlcpd else set())


def compiled(size: int) -> None:
    """Steps whose calls torch.compile compiles, before and after the program has run without."""
    model, arguments = perceptron()
    mesh = Mesh({"model": size})
    annotate(model, mesh, {"up.weight": ("model", None)})
    parallel = partition(model, mesh, example=arguments)
    with pytest.raises(BadConfig, match=r"compile\(dynamic=...\) is fixed"):
        parallel.compile(dynamic=True)
    _check_step(parallel, model, arguments)
    parallel.compile()  # at the next step
    parallel.compile(backend="aot_eager")  # instead
    for _ in range(2):
        _check_step(parallel, model, arguments)
    with measured(parallel):
        _check_step(parallel, model, arguments)
    assert "measured (ms)" in explain(parallel)


def _check_step(parallel: Partitioned, model: nn.Module, arguments: tuple[Tensor, ...]) -> None:
    model.zero_grad()
    parallel.zero_grad()
    loss, right = parallel(*arguments).sum(), model(*arguments).sum()
    loss.backward()
    right.backward()
    torch.testing.assert_close(loss, right, rtol=1e-9, atol=1e-9)
    for name, one in model.named_parameters():
        gradient = parallel.get_parameter(name).grad
        assert gradient is not None
        torch.testing.assert_close(full(gradient), one.grad, rtol=1e-9, atol=1e-9)


@contextmanager
def _saved_bytes() -> Iterator[Callable[[Sequence[Tensor]], int]]:
    """Bytes that forward passes save, as autograd sees them, but for those of their inputs."""
    sizes: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        sizes[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    def count(inputs: Sequence[Tensor]) -> int:
        for one in inputs:
            sizes.pop(one.untyped_storage().data_ptr(), None)
        return sum(sizes.values())

    with saved_tensors_hooks(pack, lambda x: x):
        yield count


def _check_equal(parallel: Partitioned, model: nn.Module) -> None:
    for name, right in model.named_parameters():
        found = full(parallel.get_parameter(name).detach())
        torch.testing.assert_close(found, right.detach(), rtol=1e-9, atol=1e-9)
    for name, buffer in model.named_buffers():
        held = full(parallel.get_buffer(name))
        torch.testing.assert_close(held, buffer, rtol=1e-9, atol=1e-9)


def _reloaded(parallel: Partitioned, model: nn.Module) -> None:
    """A checkpoint of one device goes in and comes out."""
    with torch.no_grad():
        for one in model.parameters():
            one.mul_(1.5)
    options = StateDictOptions(full_state_dict=True)
    set_model_state_dict(parallel, dict(model.state_dict()), options=options)
    _check_equal(parallel, model)
    for name, x in get_model_state_dict(parallel, options=options).items():
        assert isinstance(x, Tensor) and torch.equal(x, model.state_dict()[name])


def dying(rank: int, size: int) -> str:
    """Rank 1 dies between steps, and the next thing that its neighbours do is a halo exchange. The
    error of the others."""
    model, arguments = convolutions()
    inputs = [(None, None, None, "space"), None]
    mesh = Mesh({"space": size})
    parallel = partition(model, mesh, example=arguments, inputs=inputs)
    given = [shard(x, dims or (), mesh) for x, dims in zip(arguments, inputs, strict=True)]
    parallel(*given)
    dist.barrier()
    if rank == 1:
        os._exit(1)
    try:
        for _ in range(3):  # what was sent before may complete the first exchanges
            parallel(*given)
    except RuntimeError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def mistakes(rank: int, size: int) -> None:
    """Each has one error, which names its place."""
    model, (x, target) = perceptron()
    mesh = Mesh({"data": size})
    inputs = [("data", None), ("data",)]
    with pytest.raises(BadConfig, match=f"has {size + 1} ranks, and the job {size}"):
        partition(model, Mesh({"data": size + 1}), example=(x, target))
    parallel = partition(model, mesh, example=(x, target), inputs=inputs)
    with pytest.raises(
        BadConfig, match=r"argument 0 is \[7, 13\] .*: this rank's shard of \[7, 13"
    ):
        parallel(x, target)
    with pytest.raises(BadConfig, match="nested as"):
        parallel(x)
    loss = parallel(
        *(shard(one, dims, mesh) for one, dims in zip((x, target), inputs, strict=True))
    )
    with pytest.raises(BadConfig, match="no gradients of gradients"):
        torch.autograd.grad(loss, list(parallel.parameters()), create_graph=True)
    other = perceptron()[0]
    other.up = nn.Linear(13, 23)
    with pytest.raises(RuntimeError, match=r"size mismatch for up.weight: .*\[23, 13\]"):
        set_model_state_dict(
            parallel, dict(other.state_dict()), options=StateDictOptions(full_state_dict=True)
        )
    with pytest.raises(RuntimeError, match=r'Missing key.*"up.weight"'):
        parallel.load_state_dict({})
    wider = perceptron()[0]
    wider.up, wider.down = nn.Linear(13, 23).double(), nn.Linear(23, 5).double()
    mine = wider if rank == 1 else model
    with pytest.raises(RanksDisagree, match=r"rank 1 has another program than rank 0: .*23.*22"):
        partition(mine, mesh, example=(x, target), inputs=inputs)
    _check_equal(parallel, model)
    check_equal("one\ntwo")
    with pytest.raises(RanksDisagree, match="rank 1 has another program than rank 0: 'line 1'"):
        check_equal(f"same\nline {rank}")
