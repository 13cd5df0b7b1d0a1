"""From the splits of a dimension to those of its factors, and back.

A dimension that was flattened from factors f, g (f major) is cut as f is, and then, inside the
rows of f that a rank holds, as g is: `Split(axis, outer)`.
"""

from collections.abc import Iterable, Mapping
from math import prod

from .meshes import Mesh
from .rules import Rule
from .rules.rule import Dim, Dims
from .sharding import Sharding, Split, Splits, axes_of

ByFactor = Mapping[str, Splits]


def dealt(dim: Dim, splits: Splits, sizes: Mapping[str, int], mesh: Mesh) -> dict[str, Splits]:
    """The splits of each factor of a dimension. Splits that fit no factor, and those after them,
    are left out."""
    if len(dim) == 1:
        return {dim[0]: splits}
    left = [sizes[factor] for factor in dim]  # rows of each factor on a rank
    found: dict[str, Splits] = {}
    for axis, outer in splits if dim else ():
        at = _factor_cut(left, outer)
        parts = mesh.sizes[axis]
        inner = outer // prod(left[:at])
        if left[at] % (inner * parts):
            break
        found[dim[at]] = (*found.get(dim[at], ()), Split(axis, inner))
        left[at] //= parts
    return found


def _factor_cut(left: list[int], outer: int) -> int:
    """The last factor that begins inside `outer` blocks of rows."""
    found = 0
    for at in range(1, len(left)):
        if outer % prod(left[:at]) == 0 and prod(left[:at]) <= outer:
            found = at
    return found


def merged(dim: Dim, by_factor: ByFactor, sizes: Mapping[str, int], mesh: Mesh) -> Splits | None:
    """The splits of a dimension. None: it cannot be cut as its factors are, because padding would
    lie inside it."""
    if len(dim) == 1:
        splits = by_factor.get(dim[0], ())
        return splits if _cuts_blocks_evenly(sizes[dim[0]], splits, mesh) else None
    found: Splits = ()
    major = 1  # rows on a rank of the factors before
    for factor in dim:
        splits = by_factor.get(factor, ())
        found += tuple(Split(axis, outer * major) for axis, outer in splits)
        parts = mesh.parts(splits)
        if sizes[factor] % parts:
            return None
        major *= sizes[factor] // parts
    return found


def _cuts_blocks_evenly(size: int, splits: Splits, mesh: Mesh) -> bool:
    for split in splits:
        if split.outer > 1 and size % (split.outer * mesh.sizes[split.axis]):
            return False
        size = mesh.local_size(size, (split,))
    return True


def sharding_of(dims: Dims, by_factor: ByFactor, rule: Rule, mesh: Mesh) -> Sharding | None:
    """The sharding of a tensor. None: it cannot be divided in that way."""
    found = []
    for dim in dims:
        splits = merged(dim, by_factor, rule.sizes, mesh)
        if splits is None:
            return None
        found.append(splits)
    return tuple(found)


def axes_used(by_factor: ByFactor, but: str = "") -> set[str]:
    """The axes of all factors but one."""
    return {axis for name, splits in by_factor.items() if name != but for axis in axes_of(splits)}


def adds_to(new: Iterable[Split], old: Iterable[Split]) -> bool:
    """Whether `new` has the axes of `old`, and more."""
    return set(axes_of(new)) > set(axes_of(old))
