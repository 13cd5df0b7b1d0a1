"""Rows of classes and bounds: what was asked, in few rows, and never worse than asked."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcp_client.operations.layers import Layer, in_one_class, joined, rows
from dlcpd.contract.errors import BadPolicy
from dlcpd.contract.messages import LayerRow
from dlcpd.contract.policy import EXACT, bounded
from dlcpd.contract.traffic import traffic_classes

RANK = {name: row.rank for name, row in traffic_classes().items()}


def test_a_row_says_class_and_bound() -> None:
    policy = bounded(0.02, per_class={"front": 0.001})
    layers = [(0, "back"), (8, "front"), (12, "middle")]
    assert rows(layers, policy, 16) == [
        (0, RANK["back"], 20_000),
        (8, RANK["front"], 1_000),
        (12, RANK["middle"], 20_000),
    ]


def test_exact_has_a_bound_of_zero() -> None:
    assert rows([(0, "front")], EXACT, 4) == [(0, RANK["front"], 0)]


def test_equal_neighbours_are_one_row() -> None:
    assert rows([(0, "back"), (4, "back"), (8, "front")], EXACT, 12) == [
        (0, RANK["back"], 0),
        (8, RANK["front"], 0),
    ]


@pytest.mark.parametrize(("chosen", "expected"), [("bulk", "middle"), ("back", "back")])
def test_where_clients_compute_rows_have_one_class_and_their_own_bounds(
    chosen: str, expected: str
) -> None:
    policy = bounded(0.02, per_class={"front": 0.001}, traffic_class=chosen)
    found = rows([(0, "back"), (4, "middle"), (8, "front")], policy, 16)
    assert in_one_class(found, policy) == [(0, RANK[expected], 20_000), (8, RANK[expected], 1_000)]
    assert in_one_class([], policy) == []


def test_nothing_asked_is_no_rows() -> None:
    assert rows([], EXACT, 4) == []


@pytest.mark.parametrize(
    "layers", [[(4, "front")], [(0, "front"), (0, "back")], [(0, "front"), (16, "back")],
               [(0, "front"), (8, "back"), (4, "middle")], [(-4, "front")]],
)  # fmt: skip
def test_layers_ascend_from_zero_within_the_tensor(layers: list[Layer]) -> None:
    with pytest.raises(BadPolicy, match="ascending from 0, within the 16 B"):
        rows(layers, EXACT, 16)


def test_an_unknown_class_is_refused() -> None:
    with pytest.raises(BadPolicy, match="layer at 0: class 'fast': use one of control, front"):
        rows([(0, "fast")], EXACT, 16)


def test_the_shortest_rows_are_joined_first() -> None:
    found = [LayerRow(*row) for row in ((0, 3, 50), (10, 1, 80), (11, 3, 70), (30, 2, 10))]
    assert joined(found, 40, 3) == [(0, 1, 50), (11, 3, 70), (30, 2, 10)]


STARTS = st.sets(st.integers(1, 99), max_size=12).map(lambda s: [0, *sorted(s)])


@given(STARTS, st.data(), st.integers(1, 13))
def test_no_byte_is_worse_off(starts: list[int], data: st.DataObject, limit: int) -> None:
    values = st.tuples(st.integers(0, 3), st.integers(0, 2))
    found = [LayerRow(start, *data.draw(values)) for start in starts]
    out = joined(found, 100, limit)
    assert len(out) <= limit
    assert out[0][0] == 0
    assert all(a[0] < b[0] and a[1:] != b[1:] for a, b in pairwise(out))
    for byte in range(100):
        asked, got = at(found, byte), at(out, byte)
        assert got[1] <= asked[1] and got[2] <= asked[2]
        if len(joined(found, 100, 100)) <= limit:
            assert got[1:] == asked[1:]


def at(found: list[LayerRow], byte: int) -> LayerRow:
    return [row for row in found if row[0] <= byte][-1]
