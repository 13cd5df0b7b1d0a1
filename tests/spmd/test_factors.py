"""Factors: what a reshape has in common, and splits of dimensions that were flattened."""

from math import prod

import torch
from hypothesis import given
from hypothesis import strategies as st

from dlcp_client.spmd.factors import dealt, merged
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.rules.shapes import common_factors
from dlcp_client.spmd.sharding import Split

MESH = Mesh({"a": 2, "b": 3})


def test_factors_of_reshapes() -> None:
    assert common_factors((6, 4), (3, 8)) == (
        (("d0", "d1"), ("d2",)),
        (("d0",), ("d1", "d2")),
        {"d0": 3, "d1": 2, "d2": 4},
    )
    assert common_factors((4, 6), (6, 4))[:2] == (((), ()), ((), ()))
    assert common_factors((5, 4, 6), (5, 1, 24))[:2] == (
        (("d0",), ("d1",), ("d2",)),
        (("d0",), (), ("d1", "d2")),
    )
    assert common_factors((2, 0), (0, 7)) == (((), ()), ((), ()), {})
    assert common_factors((1,), ()) == (((),), (), {})


@given(st.lists(st.integers(1, 6), max_size=4), st.data())
def test_factors_of_a_reshape_multiply_to_its_dimensions(
    shape: list[int], data: st.DataObject
) -> None:
    new = data.draw(st.permutations(shape))
    old_dims, new_dims, sizes = common_factors(shape, new)
    for given_, dims in ((shape, old_dims), (new, new_dims)):
        for size, dim in zip(given_, dims, strict=True):
            assert not dim or prod(sizes[one] for one in dim) == size
    flat = [one for dim in old_dims for one in dim]
    assert flat == [one for dim in new_dims for one in dim] and len(flat) == len(set(flat))


def test_splits_of_a_flattened_dimension() -> None:
    sizes = {"f": 4, "g": 6}
    both = {"f": (Split("a"),), "g": (Split("b"),)}
    assert merged(("f", "g"), both, sizes, MESH) == (Split("a"), Split("b", 2))
    assert dealt(("f", "g"), (Split("a"), Split("b", 2)), sizes, MESH) == both
    assert dealt(("f", "g"), (Split("b"),), sizes, MESH) == {}  # 4 rows are no 3 shards
    assert merged(("f", "g"), {"f": (Split("b"),)}, sizes, MESH) is None
    assert dealt((), (Split("a"),), sizes, MESH) == {}
    assert merged((), both, sizes, MESH) == ()


def test_a_split_of_blocks_within_a_factor_keeps_its_blocks() -> None:
    sizes = {"f": 2, "g": 12}
    within = {"g": (Split("b", 2),)}
    assert merged(("f", "g"), within, sizes, MESH) == (Split("b", 4),)
    assert dealt(("f", "g"), (Split("b", 4),), sizes, MESH) == within
    assert merged(("g",), {"g": (Split("a", 4),)}, {"g": 12}, MESH) is None


def cut(x: torch.Tensor, splits: tuple[Split, ...], at: dict[str, int]) -> torch.Tensor:
    """A shard of the first dimension, by the definition of `Split`."""
    for axis, outer in splits:
        blocks = x.view(outer, -1)
        rows = blocks.shape[1] // MESH.sizes[axis]
        x = blocks[:, at[axis] * rows : (at[axis] + 1) * rows].reshape(-1)
    return x


@given(st.lists(st.sampled_from([2, 3, 4, 6, 12]), min_size=1, max_size=3), st.data())
def test_a_flattened_dimension_is_cut_as_its_factors_are(
    shape: list[int], data: st.DataObject
) -> None:
    sizes = {f"f{at}": size for at, size in enumerate(shape)}
    by_factor: dict[str, tuple[Split, ...]] = {}
    for axis in data.draw(st.permutations(["a", "b"])):
        name = data.draw(st.sampled_from([*sizes, ""]))
        if name:
            by_factor[name] = (*by_factor.get(name, ()), Split(axis))
    splits = merged(tuple(sizes), by_factor, sizes, MESH)
    if splits is None or any(sizes[name] % MESH.parts(s) for name, s in by_factor.items()):
        return
    found = dealt(tuple(sizes), splits, sizes, MESH)
    assert {name: part for name, part in found.items() if part} == by_factor
    whole = torch.arange(prod(shape))
    for rank in range(MESH.ranks):
        at, x = MESH.coordinates(rank), whole.view(shape)
        for dim, name in enumerate(sizes):
            for split in by_factor.get(name, ()):
                rows = x.shape[dim] // MESH.sizes[split.axis]
                x = x.narrow(dim, at[split.axis] * rows, rows)
        assert cut(whole, splits, at).equal(x.reshape(-1))
