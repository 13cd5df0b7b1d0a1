"""What one rank does in a test of DTensor's graphs: runs in a process of its own."""

from collections import Counter
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor, fx, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)

from dlcp_client import fused
from dlcp_client.fused.model_parallel.compiled import GATHERED, OverlapPass
from tests.c10d.worlds import job

ROWS, WIDTH = 12, 24


class Attention(nn.Module):
    """Two products of the same rows, a product of both, and a bias or none."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.up, self.gate = (nn.Linear(WIDTH, 2 * WIDTH, bias) for _ in range(2))
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.down(torch.relu(self.up(x)) * self.gate(x)))


class Counting(OverlapPass):
    """Counts the operators that it has made."""

    made: ClassVar[Counter[str]] = Counter()

    def __call__(self, graph: fx.Graph) -> None:
        super().__call__(graph)
        made = [n for n in graph.nodes if str(n.target).startswith("dlcp_fused")]
        self.made.update(str(node.target).split(".")[1] for node in made)
        sums: Any = [node for node in made if node.target is not GATHERED]
        self.made["gradients meanwhile"] += sum(len(node.args[-1]) for node in sums)

    def uuid(self) -> Any:
        return None  # no graph from a cache


def compiled(rank: int, store: str, world: int, backend: str = "dlcp") -> dict[str, Any]:
    """Differences of compiled models to eager ones, and the operators of their graphs."""
    found: dict[str, Any] = {}
    with job(backend, store, rank, world):
        mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))
        for sequence, shape in ((False, (ROWS, WIDTH)), (True, (ROWS, 3, WIDTH))):
            Counting.made.clear()
            apart = _difference(mesh, sequence, shape, bias=not sequence)
            found[f"sequence {sequence}"] = apart if apart > 1e-5 else 0.0, dict(Counting.made)
        dist.barrier()
    return found


def _difference(mesh: DeviceMesh, sequence: bool, shape: tuple[int, ...], bias: bool) -> float:
    torch.manual_seed(1)
    model = nn.Sequential(Attention(bias))  # hooks of the inner one are in the graphs
    inputs = {"up": ColwiseParallel(), "gate": ColwiseParallel()}
    out = RowwiseParallel(output_layouts=Shard(0) if sequence else Replicate())
    first = PrepareModuleInput(
        input_layouts=Shard(0) if sequence else Replicate(), desired_input_layouts=Replicate()
    )
    parallelize_module(model[0], mesh, {"": first, **inputs, "down": out})
    options = fused.inductor_options(3) | {"post_grad_custom_pre_pass": Counting(3)}
    torch._dynamo.reset()  # noqa: SLF001  # graphs of the last model
    fast: Any = torch.compile(model, options=options)
    whole = torch.randn(shape)
    x = whole.chunk(mesh.size())[mesh.get_local_rank()] if sequence else whole
    results = []
    for call in (model, fast):
        given = x.clone().requires_grad_()
        y = call(given)
        y.square().sum().backward()
        parameters: list[Any] = list(model.parameters())
        grads = [p.grad.to_local().clone() for p in parameters]
        results.append([y.detach(), given.grad, *grads])
        model.zero_grad()
    assert len(results[0]) == len(results[1]) > 4
    return max(float((a - b).abs().max()) for a, b in zip(*results, strict=True))
