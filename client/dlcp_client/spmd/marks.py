"""`mesh_split`: an annotation inside a model, for a tensor that has no name outside."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from dlcpd.contract.errors import BadConfig

from .annotations import Annotation, Dim, checked
from .meshes import Mesh
from .sharding import axes_in, whole


@torch.library.custom_op("dlcp_spmd::mesh_split", mutates_args=())
def _marked(x: torch.Tensor, number: int) -> torch.Tensor:
    """The same values; `number` is the annotation's in the list of the capture."""
    return x.clone()


@_marked.register_fake
def _(x: torch.Tensor, number: int) -> torch.Tensor:
    return torch.empty_like(x)


def _setup(ctx: Any, inputs: tuple[torch.Tensor, int], output: torch.Tensor) -> None:
    ctx.number = inputs[1]


def _backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
    return _marked(gradient, ctx.number), None


_marked.register_autograd(_backward, setup_context=_setup)
SPLIT: Final = "mesh_split"
MARK: Final = torch.ops.dlcp_spmd.mesh_split.default


@dataclass(frozen=True, slots=True)
class Marks:
    """The annotations of one capture, by number."""

    mesh: Mesh
    found: list[Annotation]
    regions: dict[int, set[str]] = field(default_factory=dict)  # the axes of a border's region

    def add(self, annotation: Annotation, axes: set[str]) -> int:
        """The number of a border of a manual region, which will know `axes`, and its own."""
        axes |= set(axes_in(annotation.sharding))
        self.found.append(annotation)
        number = len(self.found) - 1
        self.regions[number] = axes
        return number


_marks: ContextVar[Marks | None] = ContextVar("_marks", default=None)


@contextmanager
def collected(mesh: Mesh) -> Iterator[Marks]:
    """The annotations of the models that are captured meanwhile."""
    marks = Marks(mesh, [])
    token = _marks.set(marks)
    try:
        yield marks
    finally:
        _marks.reset(token)


def current() -> Marks | None:
    """Of the capture that is running."""
    return _marks.get()


def mesh_split(
    x: torch.Tensor, mesh: Mesh, dims: Sequence[Dim], *, priority: int = 0
) -> torch.Tensor:
    """Say how a tensor and its gradient are divided. Outside `partition`: nothing.

    Raises: BadConfig, as `annotate` does.
    """
    marks = _marks.get()
    if marks is None:
        return x
    if marks.mesh != mesh:
        raise BadConfig(f"mesh_split names the mesh {mesh}, and partition {marks.mesh}: use one")
    name = f"the tensor of mesh_split number {len(marks.found)}"
    return _with(marks, x, checked(dims, mesh, x.shape, name=name, priority=priority, source=SPLIT))


def keep_whole(x: torch.Tensor) -> torch.Tensor:
    """Say that every rank holds a whole tensor and its gradient, whatever their size. Outside
    `partition`: nothing."""
    marks = _marks.get()
    if marks is None:
        return x
    dims = len(x.shape)
    return _with(marks, x, Annotation(whole(dims), (False,) * dims, 0, "keep_whole"))


def _with(marks: Marks, x: torch.Tensor, annotation: Annotation) -> torch.Tensor:
    marks.found.append(annotation)
    marked: torch.Tensor = _marked(x, len(marks.found) - 1)
    return marked
