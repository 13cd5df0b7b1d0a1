"""Manual regions: a function inside a model sees this rank's shards, and calls collectives.

The layouts at the borders are annotated. Between them nothing is planned. Outside of `partition`
and `plan`, one device computes all shards (`shards_alone`).
"""

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from torch import Tensor

from dlcp_client.user_lines import user_line
from dlcpd.contract.errors import BadConfig

from . import borders, marks
from .annotations import Annotation, Dim, checked
from .meshes import Mesh
from .shards_alone import Alone, on_one_device

Function = Callable[..., Any]


class _Region(Protocol):
    """The place where a region runs, for the collectives that it calls."""

    mesh: Mesh

    def collective(self, x: Tensor, kind: str, axis: str, dims: list[int]) -> Tensor: ...
    def index(self, axis: str) -> Tensor: ...


class _Captured:
    """A region of a model that is being captured. `axes` gets the names of those that it uses."""

    def __init__(self, mesh: Mesh, axes: set[str]) -> None:
        self.mesh, self._axes = mesh, axes

    def collective(self, x: Tensor, kind: str, axis: str, dims: list[int]) -> Tensor:
        self._axes.add(axis)
        made: Tensor = borders.collective(x, kind, axis, dims, self.mesh.sizes[axis])
        return made

    def index(self, axis: str) -> Tensor:
        self._axes.add(axis)
        made: Tensor = borders.axis_index(axis)
        return made


_region: ContextVar[_Region | None] = ContextVar("_region", default=None)


@contextmanager
def _running(region: _Region) -> Any:
    token = _region.set(region)
    try:
        yield
    finally:
        _region.reset(token)


def manual(
    function: Function,
    mesh: Mesh,
    *,
    inputs: Sequence[Sequence[Dim] | None],
    outputs: Sequence[Sequence[Dim] | None],
) -> Function:
    """The function as a region: it gets this rank's shards, and returns this rank's shards.

    `inputs`, `outputs`: per argument and per result the dimensions as in an annotation, without
    `OPEN`; None: every rank has the whole. They must divide evenly. Tensors are arguments; a
    result that an axis does not divide must be equal on all ranks of the axis.

    Returns: a function of whole tensors that returns a tensor, or a tuple of several.

    Raises: BadConfig naming the line and the tensor, when that function is called.
    """

    def region(*arguments: Tensor) -> Any:
        where = f"the manual region at {user_line()}"
        if _region.get() is not None:
            raise BadConfig(f"{where} is inside another one: use the collectives of the outer one")
        if len(arguments) != len(inputs) or not all(isinstance(x, Tensor) for x in arguments):
            raise BadConfig(f"{where} takes {len(inputs)} tensors, as inputs= has as many entries")
        said = [
            _border(dims, mesh, x.shape, f"argument {at} of {where}")
            for at, (x, dims) in enumerate(zip(arguments, inputs, strict=True))
        ]
        run = _captured if marks.current() is not None else _alone
        results = run(function, mesh, arguments, (said, outputs), where)
        return results[0] if len(results) == 1 else tuple(results)

    return region


Said = tuple[Sequence[Annotation], Sequence[Sequence[Dim] | None]]  # of arguments and results


def _captured(
    function: Function, mesh: Mesh, arguments: Sequence[Tensor], said: Said, where: str
) -> list[Tensor]:
    known = marks.current()
    if known is None:
        raise AssertionError("a capture is running")
    if known.mesh != mesh:
        raise BadConfig(f"{where} has the mesh {mesh}, and partition {known.mesh}: use one")
    axes: set[str] = set()
    given = []
    for x, annotation in zip(arguments, said[0], strict=True):
        number = known.add(annotation, axes)
        shape = list(mesh.local_shape(x.shape, annotation.sharding))
        given.append(borders.enter(x, number, shape, False))
    with _running(_Captured(mesh, axes)):
        made = _results(function(*given), said[1], where)
    found = []
    for y, annotation in zip(made, _of_results(made, said[1], mesh, where), strict=True):
        shape = _whole_shape(y, annotation, mesh)
        found.append(borders.leave(y, known.add(annotation, axes), shape, False))
    return found


def _alone(
    function: Function, mesh: Mesh, arguments: Sequence[Tensor], said: Said, where: str
) -> list[Tensor]:
    def shards(alone: Alone, given: Sequence[Tensor]) -> Sequence[Tensor]:
        with _running(alone):
            return _results(function(*given), said[1], where)

    def shardings(made: Sequence[Tensor]) -> list[Annotation]:
        return _of_results(made, said[1], mesh, where)

    return on_one_device(shards, mesh, arguments, said[0], shardings, where=where)


def _results(made: Any, outputs: Sequence[Any], where: str) -> list[Tensor]:
    found = list(made) if isinstance(made, tuple | list) else [made]
    if len(found) != len(outputs) or not all(isinstance(y, Tensor) for y in found):
        raise BadConfig(
            f"{where} returns {len(found)} values: it must return tensors, as many as outputs= "
            f"has entries, {len(outputs)}"
        )
    return found


def _of_results(
    made: Sequence[Tensor], outputs: Sequence[Any], mesh: Mesh, where: str
) -> list[Annotation]:
    return [
        _border(dims, mesh, y.shape, f"result {at} of {where}", is_local=True)
        for at, (y, dims) in enumerate(zip(made, outputs, strict=True))
    ]


def _border(
    dims: Any, mesh: Mesh, shape: Sequence[int], name: str, *, is_local: bool = False
) -> Annotation:
    """`is_local`: `shape` is that of a shard."""
    if dims is None:
        dims = (None,) * len(shape)
    if is_local:  # a shard of any rows will do
        shape = [max(rows, 1) * mesh.ranks for rows in shape]
    said = checked(dims, mesh, shape, name=name, source="manual")
    if any(said.is_open):
        raise BadConfig(f"{name} has an open dimension: say how it is divided")
    for dim, (rows, splits) in enumerate(zip(shape, said.sharding, strict=True)):
        if rows % mesh.parts(splits):
            raise BadConfig(
                f"dimension {dim} of {name} has {rows} rows for {mesh.parts(splits)} shards: a "
                "manual region needs equal ones, pad it before"
            )
    return said


def _whole_shape(y: Tensor, said: Annotation, mesh: Mesh) -> list[int]:
    pairs = zip(y.shape, said.sharding, strict=True)
    return [rows * mesh.parts(splits) for rows, splits in pairs]


# --- collectives ---


def all_reduce(x: Tensor, axis: str) -> Tensor:
    """The sum of the tensors of the ranks along an axis.

    Raises: BadConfig outside of a manual region, or naming the line; so do the others.
    """
    return _called("all_reduce", x, axis, [])


def all_gather(x: Tensor, axis: str, dim: int = 0) -> Tensor:
    """The tensors of the ranks along an axis, one after another in a dimension."""
    return _called("all_gather", x, axis, [dim])


def reduce_scatter(x: Tensor, axis: str, dim: int = 0) -> Tensor:
    """This rank's part of a dimension of the sum, which the axis divides evenly."""
    return _called("reduce_scatter", x, axis, [dim], divided=dim)


def all_to_all(x: Tensor, axis: str, dim: int, to: int) -> Tensor:
    """The parts that the ranks have of `dim` together, of which this rank keeps its part of `to`,
    which the axis divides evenly."""
    return _called("all_to_all", x, axis, [dim, to], divided=to)


def shift(x: Tensor, axis: str, by: int = 1) -> Tensor:
    """The tensor of the rank `by` places before this one along an axis; the last is before the
    first."""
    return _called("shift", x, axis, [by])


def axis_index(axis: str) -> Tensor:
    """This rank's place along an axis, as a tensor: Python branches must not depend on it."""
    return _here("axis_index", axis).index(axis)


def _called(
    kind: str, x: Tensor, axis: str, dims: list[int], *, divided: int | None = None
) -> Tensor:
    region = _here(kind, axis)
    where, rank = f"{kind} at {user_line()}", x.dim()
    if kind != "shift":
        for dim in dims:
            if not -rank <= dim < rank:
                raise BadConfig(f"{where} names dimension {dim} of {rank}: use -{rank}..{rank - 1}")
        dims = [dim % rank for dim in dims]
    elif not rank or not x.shape[0]:
        raise BadConfig(f"{where} needs a tensor with rows, not {list(x.shape)}")
    if len(set(dims)) < len(dims):
        raise BadConfig(f"{where} names dimension {dims[0]} twice: name two dimensions")
    parts = region.mesh.sizes[axis]
    if divided is not None and x.shape[divided] % parts:
        raise BadConfig(
            f"{where} divides {x.shape[divided]} rows into {parts} parts: they must be equal, pad "
            "the tensor before"
        )
    return region.collective(x, kind, axis, dims)


def _here(kind: str, axis: str) -> _Region:
    region = _region.get()
    if region is None:
        raise BadConfig(f"{kind} at {user_line()} is not in a function of spmd.manual")
    if axis not in region.mesh.sizes:
        raise BadConfig(
            f"axis {axis!r} of {kind} at {user_line()} is not in the mesh {region.mesh}: use one "
            f"of {', '.join(region.mesh.names)}"
        )
    return region
