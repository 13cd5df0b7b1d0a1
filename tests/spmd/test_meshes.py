"""Meshes: coordinates, groups, and rows of shards; every row has exactly one place."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dlcp_client.spmd.collectives import Position
from dlcp_client.spmd.meshes import Mesh, mesh
from dlcp_client.spmd.sharding import Split, text_of
from dlcpd.contract.errors import BadConfig
from tests.spmd.one_device import together

MESHES = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(
    lambda sizes: Mesh(dict(zip("abc", sizes, strict=False)))
)


def test_ranks_lie_row_by_row() -> None:
    two = mesh(data=2, model=3)
    assert two.ranks == 6 and str(two) == "data=2 x model=3"
    assert two.coordinates(4) == {"data": 1, "model": 1}
    assert two.members(4, "model") == [3, 4, 5]
    assert two.members(4, "data") == [1, 4]


def test_a_model_that_has_a_mesh_is_copied() -> None:
    one = mesh(data=2, model=3)
    assert deepcopy(one) == one


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({}, "a mesh has 1 to 8 axes, not 0"),
        ({letter: 1 for letter in "abcdefghi"}, "not 9"),
        ({"data": 0}, "axis 'data' has size 0: use a whole number, 1 or more"),
        ({"data": 2.0}, "axis 'data' has size 2.0"),
        ({"data": True}, "axis 'data' has size True"),
    ],
)
def test_a_wrong_axis_is_named(sizes: dict[str, Any], said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        Mesh(sizes)


@given(MESHES)
def test_a_rank_is_a_member_of_its_groups(of: Mesh) -> None:
    for rank in range(of.ranks):
        for axis in of.names:
            members = of.members(rank, axis)
            assert members[of.coordinates(rank)[axis]] == rank
            assert all(of.members(one, axis) == members for one in members)


@given(MESHES, st.integers(1, 13), st.data())
def test_shards_hold_every_row_once(of: Mesh, size: int, data: st.DataObject) -> None:
    axes = data.draw(st.permutations(of.names))[: data.draw(st.integers(0, len(of.names)))]
    splits = tuple(map(Split, axes))
    whole = torch.arange(size)
    each, held = [], 0
    for rank in range(of.ranks):
        position = Position(of, rank)
        x = whole
        for axis in axes:
            x = position.shard(x, axis, 0)
        assert x.shape[0] == of.local_size(size, splits)
        rows = of.rows_held(size, splits, position.at)
        assert (x[rows:] == 0).all()
        copies = of.ranks // of.parts(splits)
        held += rows
        each.append(x)
    assert held == size * copies
    assert together(each, (splits,), of, (size,)).equal(whole)


def test_padding_is_replaced_whatever_it_is() -> None:
    position = Position(Mesh({"a": 2}), 1)
    x = torch.tensor([[1.0, float("nan")], [2.0, float("inf")]])
    assert position.masked(x, 1, 3, ("a",)).tolist() == [[1, 0], [2, 0]]
    assert position.masked(x, 0, 4, ("a",)) is x


def test_a_sharding_has_a_text() -> None:
    assert text_of(((Split("a"),), (), (Split("b"), Split("c", 4)))) == "(a, -, b+c/4)"
