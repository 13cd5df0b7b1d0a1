"""What a user says about tensors: their shardings, checked, with one error per mistake."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from torch import nn

from dlcpd.contract.errors import BadConfig

from .meshes import Mesh
from .sharding import Sharding, Split, axes_of

OPEN: Final = "?"  # a dimension that propagation decides
MAX_PRIORITY: Final = 9  # each priority is a pass of propagation
Dim: TypeAlias = str | Sequence[str] | None


@dataclass(frozen=True, slots=True)
class Annotation:
    """The sharding of one tensor; propagation adds axes to the open dimensions only."""

    sharding: Sharding
    is_open: tuple[bool, ...]
    priority: int
    source: str  # who said so, for `explain`


def checked(
    dims: Any, mesh: Mesh, shape: Sequence[int], *, name: str, priority: int = 0, source: str
) -> Annotation:
    """The annotation of a tensor of `shape`, called `name` in messages.

    Raises: BadConfig naming the tensor, the dimension and the axis.
    """
    if isinstance(dims, str) or not isinstance(dims, Sequence) or len(dims) != len(shape):
        raise BadConfig(
            f"{name} has {len(shape)} dimensions, and its annotation is {dims!r}: give a tuple "
            "with an axis, a tuple of axes, None or spmd.OPEN for each of them"
        )
    if type(priority) is not int or not 0 <= priority <= MAX_PRIORITY:
        raise BadConfig(f"priority {priority!r} of {name}: use a whole number, 0..{MAX_PRIORITY}")
    sharding = tuple(_splits(dim, mesh, name) for dim in dims)
    axes = axes_of(chain(*sharding))
    for axis in axes:
        if axes.count(axis) > 1:
            raise BadConfig(
                f"axis {axis!r} occurs twice in the annotation {dims!r} of {name}: an axis divides "
                "one dimension of a tensor"
            )
    for dim, (size, splits) in enumerate(zip(shape, sharding, strict=True)):
        _check_fit(size, splits, mesh, f"dimension {dim} of {name}")
    return Annotation(sharding, tuple(dim == OPEN for dim in dims), priority, source)


def _splits(dim: Any, mesh: Mesh, name: str) -> tuple[Split, ...]:
    if dim is None or dim == OPEN:
        return ()
    axes = (dim,) if isinstance(dim, str) else dim
    for axis in axes if isinstance(axes, Sequence) else [axes]:
        if axis not in mesh.sizes:
            raise BadConfig(
                f"axis {axis!r} of the annotation of {name} is not in the mesh {mesh}: use one of "
                f"{', '.join(mesh.names)}, or None"
            )
    return tuple(Split(axis) for axis in axes)


def _check_fit(size: int, splits: tuple[Split, ...], mesh: Mesh, what: str) -> None:
    parts, axes = mesh.parts(splits), "+".join(axes_of(splits))
    if splits and size < parts:
        raise BadConfig(
            f"{what} has {size} rows, fewer than the {parts} shards of {axes}: "
            "leave it whole, or divide another dimension"
        )
    if not may_be_stored(size, splits, mesh):
        raise BadConfig(
            f"{what} has {size} rows for {axes}: several axes of one dimension "
            f"come in the order of the mesh ({', '.join(mesh.names)}), and divide it evenly"
        )


def may_be_stored(size: int, splits: tuple[Split, ...], mesh: Mesh) -> bool:
    """Whether a DTensor can hold such a dimension: torch cuts the rest of an uneven cut again,
    and deals mesh axes in their order."""
    axes = axes_of(splits)
    if len(axes) > 1 and size % mesh.parts(splits):
        return False
    in_order = sorted(axes, key=mesh.names.index)
    return list(axes) == in_order and all(split.outer == 1 for split in splits)


@dataclass(slots=True)
class Annotated:
    """The annotations of a model's parameters and buffers by name."""

    mesh: Mesh
    by_name: dict[str, Annotation]


_ANNOTATED: WeakKeyDictionary[nn.Module, Annotated] = WeakKeyDictionary()


def annotate(
    model: nn.Module, mesh: Mesh, patterns: Mapping[str, Sequence[Dim]], *, priority: int = 0
) -> None:
    """Say how parameters and buffers are divided: `{"*.up.weight": ("model", None)}`.

    A pattern is that of a shell: `*` stands for any text, dots included, `[qkv]` for one letter. A
    later pattern replaces an earlier one. Lower priorities propagate first.

    Raises: BadConfig naming the pattern or the tensor, and then keeps nothing of the call.
    """
    tensors = dict(chain(_parameters(model), model.named_buffers(remove_duplicate=False)))
    found: dict[str, Annotation] = {}
    for pattern, dims in patterns.items():
        names = [name for name in tensors if fnmatchcase(name, pattern)]
        if not names:
            raise BadConfig(_unmatched(pattern, model, list(tensors)))
        for name in names:
            said = f"annotation {pattern!r}"
            shape = tensors[name].shape
            found[name] = checked(dims, mesh, shape, name=name, priority=priority, source=said)
    _share_with_tied(tensors, found)
    known = _ANNOTATED.setdefault(model, Annotated(mesh, {}))
    if known.mesh != mesh:
        raise BadConfig(f"the model has annotations for the mesh {known.mesh}: use the same mesh")
    known.by_name |= found


def _parameters(model: nn.Module) -> Any:
    return model.named_parameters(remove_duplicate=False)


def _share_with_tied(tensors: Mapping[str, Any], found: dict[str, Annotation]) -> None:
    """One tensor with two names has one annotation."""
    first: dict[int, str] = {}
    for name, annotation in found.items():
        other = first.setdefault(id(tensors[name]), name)
        if found[other].sharding != annotation.sharding:
            raise BadConfig(
                f"{other} and {name} are one tensor, and have different annotations: use one"
            )
    for name, tensor in tensors.items():
        if id(tensor) in first:
            found.setdefault(name, found[first[id(tensor)]])


def _unmatched(pattern: str, model: nn.Module, names: list[str]) -> str:
    near = get_close_matches(pattern, names, n=1, cutoff=0)
    hint = f"; the nearest is {near[0]}" if near else ""
    return f"annotation {pattern!r} names no parameter of {type(model).__name__}{hint}"


def annotations_of(model: nn.Module, mesh: Mesh) -> dict[str, Annotation]:
    """Raises: BadConfig for annotations for another mesh."""
    known = _ANNOTATED.get(model)
    if known is None:
        return {}
    if known.mesh != mesh:
        raise BadConfig(
            f"the model has annotations for the mesh {known.mesh}, not for {mesh}: use that mesh"
        )
    return dict(known.by_name)
