"""The halos of one call: the factors with windows that a choice divides, and its arguments then."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import fx

from .factors import ByFactor
from .meshes import Mesh
from .rules import Dims, Rule
from .rules.rule import Halo


def divided_halos(rule: Rule, by_factor: ByFactor, mesh: Mesh) -> dict[str, str]:
    """The axis of each factor whose dimensions do not match row by row."""
    return {
        factor: by_factor[factor][0].axis
        for factor in rule.halos
        if by_factor.get(factor) and mesh.parts(by_factor[factor]) > 1
    }


def divides_halos_simply(rule: Rule, by_factor: ByFactor) -> bool:
    """Windows are of shards that follow one another: one axis, which does not cut blocks."""
    parts = [by_factor.get(factor, ()) for factor in rule.halos]
    return all(len(part) <= 1 and all(split.outer == 1 for split in part) for part in parts)


def windows_of(rule: Rule, axes: Mapping[str, str], dims: Dims) -> Iterator[tuple[int, str, Halo]]:
    """The dimension, the axis and the halo of each divided factor of a tensor of `dims`."""
    for dim, factors in enumerate(dims):
        for factor in factors:
            if factor in axes:
                yield dim, axes[factor], rule.halos[factor]


def with_edits(
    node: fx.Node, args: Sequence[Any], rule: Rule, axes: Mapping[str, str], mesh: Mesh
) -> list[Any]:
    """The arguments of a call on windows."""
    target: Any = node.target
    schema = target._schema.arguments  # noqa: SLF001  # of an OpOverload
    made = [*args, *(one.default_value for one in schema[len(args) :])]
    for factor, axis in axes.items():
        halo = rule.halos[factor]
        for argument, item, plus, times in halo.edits:
            value = plus + times * halo.window.rows(mesh.sizes[axis])
            if item is None:
                made[argument] = value
            else:
                listed = list(made[argument])
                listed[item % len(listed)] = value
                made[argument] = listed
    return made
