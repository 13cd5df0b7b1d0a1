"""Random programs: chains of operations on tensors of 1 to 13 rows, with random annotations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dlcp_client.spmd.annotations import annotate
from dlcp_client.spmd.costs import Costs
from dlcp_client.spmd.marks import mesh_split
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.planning import plan
from tests.spmd.one_device import assert_equal

MAX_ELEMENTS: Final = 3000
Step = Callable[[Tensor], Tensor]


class Chain(nn.Module):
    """The steps in order; the results are a loss and the last tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.weights = nn.ParameterList()

    def weight(self, *shape: int) -> int:
        generator = torch.Generator().manual_seed(len(self.weights))
        self.weights.append(torch.randn(shape, generator=generator, dtype=torch.double))
        return len(self.weights) - 1

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        for step in self.steps:
            x = step(x)
        return (x * x).sum(), x


@dataclass
class Program:
    """One random program and what is said about it."""

    mesh: Mesh
    chain: Chain
    x: Tensor
    dims: tuple[Any, ...]
    patterns: dict[str, tuple[Any, ...]]
    costs: Costs
    names: list[str] = field(default_factory=list)  # of the steps, for a reader of a failure

    def check(self) -> None:
        annotate(self.chain, self.mesh, self.patterns)
        made = plan(self.chain, self.mesh, example=(self.x,), inputs=[self.dims], costs=self.costs)
        assert_equal(made, self.chain, (self.x,))


def dims_for(random: Random, shape: Sequence[int], mesh: Mesh) -> tuple[Any, ...]:
    """A random annotation that fits."""
    found: list[list[str]] = [[] for _ in shape]
    for axis in mesh.names:
        dim = random.randint(-1, len(shape) - 1)
        if dim >= 0:
            parts = mesh.sizes[axis]
            for other in found[dim]:
                parts *= mesh.sizes[other]
            if shape[dim] >= parts and (not found[dim] or shape[dim] % parts == 0):
                found[dim].append(axis)
    return tuple(tuple(axes) if axes else None for axes in found)


def program(seed: int, length: int = 10) -> Program:
    """The same for the same seed."""
    random = Random(seed)
    mesh = Mesh({name: random.randint(1, 3) for name in "abc"[: random.randint(1, 3)]})
    shape = [random.randint(1, 13) for _ in range(random.randint(1, 3))]
    chain, names = Chain(), []
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.double)
    y = x
    for _ in range(random.randint(1, length)):
        name = random.choice(sorted(STEPS))
        step = STEPS[name](random, chain, y, mesh)
        if step is None:
            continue
        with torch.no_grad():
            z = step(y)
        if 0 < z.numel() <= MAX_ELEMENTS and z.dim() <= 5:
            y = z
            chain.steps.append(step)
            names.append(f"{name} {tuple(z.shape)}")
    chain.steps.append(lambda y: y * 2)  # a result that is not the argument itself
    patterns = {
        f"weights.{at}": dims_for(random, one.shape, mesh) for at, one in enumerate(chain.weights)
    }
    return Program(mesh, chain, x, dims_for(random, shape, mesh), patterns, costs(random), names)


def costs(random: Random) -> Costs:
    """Networks that make gathers, sums or work dear: each leads to other choices."""
    return Costs(
        latency=random.choice([0.0, 1e-4]),
        bytes_per_s=random.choice([1e2, 1e9]),
        work_per_s=random.choice([1e1, 1e10]),
    )


def _dim(random: Random, x: Tensor) -> int:
    return int(random.randint(0, x.dim() - 1))


def _linear(random: Random, chain: Chain, x: Tensor, mesh: Mesh) -> Step | None:
    if not x.dim():
        return None
    at = chain.weight(random.randint(1, 13), x.shape[-1])
    bias = chain.weight(chain.weights[at].shape[0]) if random.choice([True, False]) else None
    return lambda y: F.linear(
        y / 3, chain.weights[at], None if bias is None else chain.weights[bias]
    )


def _scaled(random: Random, chain: Chain, x: Tensor, mesh: Mesh) -> Step:
    """A product or a sum with a weight that may be broadcast."""
    shape = [n if random.choice([True, False]) else 1 for n in x.shape]
    at, times = chain.weight(*shape), random.choice([True, False])
    return lambda y: y * chain.weights[at] if times else y + chain.weights[at]


def _elementwise(random: Random, chain: Chain, x: Tensor, mesh: Mesh) -> Step:
    """Also those that make infinities and NaN out of padding."""
    which: list[Step] = [
        torch.tanh,
        F.relu,
        F.gelu,
        torch.exp,
        lambda y: 1 / (y * y + 1),
        lambda y: y + 1,
        lambda y: torch.where(y > 0, y, y / 2),
        lambda y: torch.log(y * y).clamp(-3, 3),
    ]
    found: Step = random.choice(which)
    return lambda y: found(y.clamp(-4, 4))


def _permute(random: Random, chain: Chain, x: Tensor, mesh: Mesh) -> Step:
    order = random.sample(range(x.dim()), x.dim())
    return lambda y: y.permute(order)


def _flatten(random: Random, chain: Chain, x: Tensor, mesh: Mesh) -> Step | None:
    if x.dim() < 2:
        return None
    at = random.randint(0, x.dim() - 2)
    return lambda y: y.flatten(at, at + 1)


def _unflatten(random: Random, chain: Chain, x: Tensor, mesh: Mesh) -> Step | None:
    if not x.dim():
        return None
    at = _dim(random, x)
    major = random.choice([n for n in range(1, 14) if x.shape[at] % n == 0])
    return lambda y: torch.unflatten(y, at, (major, -1))


def _sum(random: Random, chain: Chain, x: Tensor, mesh: Mesh) -> Step | None:
    if not x.dim():
        return None
    at, keep = _dim(random, x), random.choice([True, False])
    which: list[Callable[..., Tensor]] = [torch.sum, torch.mean, torch.amax, torch.logsumexp]
    found = random.choice(which)
    return lambda y: found(y, at, keep)


def _along(random: Random, chain: Chain, x: Tensor, mesh: Mesh) -> Step | None:
    if not x.dim():
        return None
    at = _dim(random, x)
    rows = [random.randrange(x.shape[at]) for _ in range(random.randint(1, 5))]
    name = f"index{len(chain.steps)}"
    chain.register_buffer(name, torch.tensor(rows))
    end = random.randint(1, x.shape[at])
    which: list[Step] = [
        lambda y: y.softmax(at),
        lambda y: y.log_softmax(at),
        lambda y: y.cumsum(at),
        lambda y: torch.cat([y, y / 2], at),
        lambda y: torch.stack([y, y], at),
        lambda y: y.narrow(at, 0, end),
        lambda y: y.select(at, end - 1),
        lambda y: y.flip(at),
        lambda y: y.roll(1, at),
        lambda y: y.index_select(at, chain.get_buffer(name)),
        lambda y: y.unsqueeze(at),
        lambda y: torch.cat(torch.split(y, 2, at)[::-1], at),
        lambda y: F.pad(y, (0, 0) * (y.dim() - 1 - at) + (1, 2)),
    ]
    found: Step = random.choice(which)
    return found


def _norm(random: Random, chain: Chain, x: Tensor, mesh: Mesh) -> Step | None:
    if x.dim() < 1:
        return None
    weight, bias = chain.weight(x.shape[-1]), chain.weight(x.shape[-1])
    shape = x.shape[-1:]
    return lambda y: F.layer_norm(y, shape, chain.weights[weight], chain.weights[bias])


def _square(random: Random, chain: Chain, x: Tensor, mesh: Mesh) -> Step | None:
    """A product of a tensor with itself."""
    return None if x.dim() < 2 else lambda y: (y / 4) @ y.transpose(-1, -2)


def _residual(random: Random, chain: Chain, x: Tensor, mesh: Mesh) -> Step | None:
    """A tensor with two users, one of which may be a partial sum."""
    if not x.dim():
        return None
    n = x.shape[-1]
    at = chain.weight(n, n)
    return lambda y: y + F.linear(y / 3, chain.weights[at]) + y * 2


def _split(random: Random, chain: Chain, x: Tensor, mesh: Mesh) -> Step:
    dims = dims_for(random, x.shape, mesh)
    return lambda y: mesh_split(y, mesh, dims)


STEPS: Final[dict[str, Callable[[Random, Chain, Tensor, Mesh], Step | None]]] = {
    "linear": _linear, "scaled": _scaled, "elementwise": _elementwise, "permute": _permute,
    "flatten": _flatten, "unflatten": _unflatten, "sum": _sum, "along": _along, "norm": _norm,
    "square": _square, "residual": _residual, "split": _split,
}  # fmt: skip
