"""Real models, and how each is divided over 2, 3 and 4 ranks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dlcp_client.spmd.annotations import annotate
from dlcp_client.spmd.costs import Costs
from dlcp_client.spmd.marks import mesh_split
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.partitioner import Partition
from dlcp_client.spmd.planning import plan
from tests.spmd.models import TENSOR_PARALLEL, gpt, perceptron
from tests.spmd.more_models import Conformer, Experts, Pipeline, ResNet, UNet

# Models of a test are small: a slow core makes their work worth dividing.
SLOW: Final = Costs(latency=0.0, bytes_per_s=1e5, work_per_s=1e6)
SPACE: Final = (None, None, None, "space")
ROWS: Final = ("data", None, None)


class Recurrent(nn.Module):
    """Two layers of LSTM, and a sum of squares."""

    def __init__(self) -> None:
        super().__init__()
        self.cells, self.last = nn.LSTM(4, 6, 2, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        found: Tensor = self.cells(x)[0]
        return F.mse_loss(self.last(found), target)


@dataclass(frozen=True, slots=True)
class Case:
    """A model, its global arguments, and what a user says of them."""

    model: nn.Module
    arguments: tuple[Tensor, ...]
    mesh: Mesh
    inputs: Sequence[Any] = ()
    patterns: Mapping[str, Any] = field(default_factory=dict)
    costs: Costs = SLOW
    priority: int = 0

    def plan(self) -> Partition:
        """Annotated and divided."""
        annotate(self.model, self.mesh, self.patterns, priority=self.priority)
        options: dict[str, Any] = {"inputs": self.inputs, "costs": self.costs}
        return plan(self.model, self.mesh, example=self.arguments, **options)


def _perceptron(size: int) -> Case:
    return Case(*perceptron(), Mesh({"model": size}), (), {"up.weight": ("model", None)}, Costs())


def _gpt(size: int) -> Case:
    """Tensor parallel, on 4 ranks beside data parallel; on 3 ranks data parallel."""
    sizes = {"data": 3} if size == 3 else {"data": size // 2, "model": 2}
    patterns = {} if size == 3 else TENSOR_PARALLEL
    batch = ("data", None)
    return Case(*gpt(batch=6), Mesh(sizes), (batch, batch), patterns, Costs())


# Every parameter, by its first dimension.
SHARDED: Final = {
    "*.bias": ("data",), "*before_*.weight": ("data",), "last.weight": ("data",),
    "*.[qkvo].weight": ("data", None), "*.up.weight": ("data", None),
    "*.down.weight": ("data", None), "tokens.weight": ("data", None), "positions": ("data", None),
}  # fmt: skip


def _sharded(size: int) -> Case:
    model, arguments = gpt(batch=6)
    batch = ("data", None)
    return Case(model, arguments, Mesh({"data": size}), (batch, batch), SHARDED, Costs(), 1)


def _resnet(size: int) -> Case:
    x, target = torch.randn(2, 3, 48, 70), torch.randint(0, 5, (2,))
    return Case(ResNet(), (x, target), Mesh({"space": size}), (SPACE, None))


def _unet(size: int) -> Case:
    x, target = torch.randn(1, 2, 12, 8, 6), torch.randint(0, 2, (1, 12, 8, 6))
    dims = (None, None, "space", None, None), (None, "space", None, None)
    return Case(UNet(), (x, target), Mesh({"space": size}), dims)


def _experts(size: int) -> Case:
    x, target = (torch.randn(2 * size, 32, 16) for _ in range(2))
    mesh = Mesh({"data": size})
    model = Experts(
        lambda y: mesh_split(y, mesh, ("data", None, None, None)), experts=6 if size == 3 else 4
    )
    return Case(model, (x, target), mesh, (ROWS, ROWS), {"up": ROWS, "down": ROWS})


def _recurrent(size: int) -> Case:
    return Case(
        Recurrent(),
        (torch.randn(12, 4, 4), torch.randn(12, 4, 3)),
        Mesh({"data": size}),
        (ROWS, ROWS),
    )


def _pipeline(size: int) -> Case:
    stages = 3 if size == 3 else 4
    patterns = dict.fromkeys(["weights", "first", "last"], ("stage", None, None))
    given = tuple(torch.randn(6, 16, 8) for _ in range(2))
    return Case(Pipeline(stages), given, Mesh({"stage": size}), (), patterns)


def _conformer(size: int) -> Case:
    time = (None, "time", None)
    given = tuple(torch.randn(6, 12, 8) for _ in range(2))
    return Case(Conformer(), given, Mesh({"time": size}), (time, time))


CASES: Final[Mapping[str, Callable[[int], Case]]] = {
    "perceptron": _perceptron,
    "gpt": _gpt,
    "gpt, sharded": _sharded,
    "resnet in space": _resnet,
    "u-net in space": _unet,
    "experts": _experts,
    "lstm": _recurrent,
    "pipeline": _pipeline,
    "conformer in time": _conformer,
}


def case(name: str, size: int, dtype: torch.dtype = torch.double) -> Case:
    """The same on every rank."""
    torch.manual_seed(0)
    made = CASES[name](size)
    arguments = tuple(x.to(dtype) if x.is_floating_point() else x for x in made.arguments)
    return replace(made, model=made.model.to(dtype), arguments=arguments)
