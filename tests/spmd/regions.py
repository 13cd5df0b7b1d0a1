"""Models with manual regions, and the same without."""

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn

from dlcp_client import spmd
from dlcp_client.spmd.meshes import Mesh

ROWS: Final = 12  # which 2, 3 and 4 ranks divide evenly
WIDTH: Final = 24


class Layer(nn.Module):
    """A product before and after a region, so that gradients pass. `mesh`: None for the model that
    a person writes for one device."""

    def __init__(self, mesh: Mesh | None) -> None:
        super().__init__()
        self.mesh = mesh
        self.before, self.after = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.before(x))
        return (torch.tanh(self.after(self.region(y))) ** 2).sum()

    def region(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class RowParallel(Layer):
    """A product whose inner dimension is divided, and its sum. With a second axis, which divides
    the rows, and one that does nothing."""

    def region(self, x: Tensor) -> Tensor:
        if self.mesh is None:
            return x @ self.weight
        rows = "data" if "data" in self.mesh.sizes else None
        region = spmd.manual(
            lambda x, w: spmd.all_reduce(x @ w, "model"),
            self.mesh,
            inputs=[(rows, "model"), ("model", None)],
            outputs=[(rows, None)],
        )
        made: Tensor = region(x, self.weight)
        return made


class Gathered(Layer):
    """The same product twice: of gathered tensors, and of rows that an all-to-all brings."""

    def region(self, x: Tensor) -> Tensor:
        if self.mesh is None:
            return x @ self.weight + x
        parts = self.mesh.sizes["model"]

        def local(x: Tensor, w: Tensor) -> Tensor:
            weight = spmd.all_gather(w, "model")
            whole = spmd.all_gather(x, "model", dim=-1) @ weight
            rows = spmd.all_to_all(x, "model", 1, 0) @ weight
            columns = spmd.all_to_all(rows, "model", 0, 1)
            return (spmd.reduce_scatter(whole, "model", dim=1) / parts + columns) / 2 + x

        region = spmd.manual(
            local, self.mesh, inputs=[(None, "model"), ("model", None)], outputs=[(None, "model")]
        )
        made: Tensor = region(x, self.weight)
        return made


class Ring(Layer):
    """Attention whose keys and values go round a ring. A causal mask depends on the rank."""

    def region(self, x: Tensor) -> Tensor:
        if self.mesh is None:
            scores = (x @ self.weight @ x.t()).tril().exp() * torch.ones(ROWS, ROWS).tril()
            return scores @ x / scores.sum(1, keepdim=True)
        parts = self.mesh.sizes["model"]

        def local(q: Tensor, x: Tensor) -> Tensor:
            rows = x.shape[0]
            own = spmd.axis_index("model")
            total, weights = torch.zeros_like(x), torch.zeros_like(x[:, :1])
            for step in range(parts):
                of = (own - step) % parts  # the rank that the keys are of
                here = torch.arange(rows) + own * rows
                there = torch.arange(rows) + of * rows
                scores = (q @ x.t()).exp() * (here[:, None] >= there[None, :])
                total = total + scores @ x
                weights = weights + scores.sum(1, keepdim=True)
                x = spmd.shift(x, "model")
            return total / weights

        by_rows = "model", None
        region = spmd.manual(local, self.mesh, inputs=[by_rows, by_rows], outputs=[by_rows])
        made: Tensor = region(x @ self.weight, x)
        return made


class Several(Layer):
    """Two results, one of whole numbers, and a tensor that every rank has as a whole."""

    def region(self, x: Tensor) -> Tensor:
        if self.mesh is None:
            return (x * (x > 0)) @ self.weight

        def local(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
            return x @ w, (x > 0).long()

        region = spmd.manual(
            lambda x, w: local(x * (x > 0), w),
            self.mesh,
            inputs=[("model", None), None],
            outputs=[("model", None), ("model", None)],
        )
        made: tuple[Tensor, Tensor] = region(x, self.weight)
        return made[0] + 0 * made[1]


LAYERS: Final[dict[str, Callable[[Mesh | None], Layer]]] = {
    "row parallel": RowParallel,
    "gathered": Gathered,
    "ring": Ring,
    "several": Several,
}


def layer(name: str, mesh: Mesh | None) -> Any:
    """With the same weights for every mesh."""
    torch.manual_seed(0)
    return LAYERS[name](mesh).double()


def rows_of_x() -> Tensor:
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(3)).double()
