"""Reductions of two ranks of one daemon, to which clients add their own parts."""

from pathlib import Path
from typing import Any

import pytest
import torch

from dlcp_client import bounded, exact
from dlcp_client.arena.tensors import TENSORS
from dlcp_client.operations.requests import request
from dlcp_client.operations.results import LEAST_ADDED, OwnPart, own_part
from tests.client import added_parts_ranks
from tests.client.added_parts_ranks import COUNT
from tests.client.test_ddp import on_each_rank


@pytest.mark.processes
def test_results_equal_those_of_engines_to_the_bit_with_a_third_of_the_copies(
    tmp_path: Path,
) -> None:
    assert on_each_rank(added_parts_ranks.results, tmp_path) == [[]] * 2


@pytest.mark.processes
def test_tensors_may_lie_anywhere_on_either_rank(tmp_path: Path) -> None:
    assert on_each_rank(added_parts_ranks.forms, tmp_path) == [[]] * 2


@pytest.mark.processes
def test_an_input_that_has_lost_its_memory_is_named(tmp_path: Path) -> None:
    assert on_each_rank(added_parts_ranks.lost_memory, tmp_path) == [[]] * 2


def part(
    given: Any, target: Any, op: str = "sum", start: int = 0, **options: Any
) -> OwnPart[Any] | None:
    block = TENSORS.block(given)
    message = request("reduce_scatter", block, op, **options)
    return own_part(TENSORS, message, TENSORS.block(target), block, start, first=True)


def test_a_large_exact_sum_has_a_part_that_is_added() -> None:
    given = torch.zeros(2 * COUNT)
    found = part(given, torch.zeros(COUNT), start=COUNT)
    assert found is not None and found.part.address == given[COUNT:].data_ptr()
    assert part(given, given[:COUNT]) and part(given, given[COUNT:])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"policy": bounded(0.01), "name": "n"}, "a residual is added"),
        ({"name": "n"}, "an earlier residual is added"),
        ({"policy": exact(codec="bf16"), "name": "n"}, "contributions are rounded"),
        ({"schedule": "forest"}, "the engine adds in parts"),
        ({"op": "max"}, "no sum"),
        ({"given": torch.zeros(2 * COUNT, dtype=torch.bfloat16)}, "numpy has no such type"),
        ({"given": torch.zeros(2 * COUNT, dtype=torch.float64), "op": "avg"}, "it may overflow"),
        ({"given": (torch.zeros(COUNT), torch.zeros(COUNT))}, "it has several pieces"),
        ({"target": (torch.zeros(COUNT - 1), torch.zeros(1))}, "so has the result"),
        ({"target": torch.zeros(LEAST_ADDED // 4 - 1)}, "a copy is quicker"),
        ({"start": COUNT + 1}, "it ends behind the input"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_engine_adds_all_others(change: dict[str, Any], reason: str) -> None:
    asked: dict[str, Any] = {"given": torch.zeros(2 * COUNT), "target": torch.zeros(COUNT)}
    assert part(**asked) is not None
    assert part(**asked | change) is None, reason


def test_a_result_over_values_that_are_not_added_yet_is_the_engines() -> None:
    given = torch.zeros(2 * COUNT)
    assert part(given, given[16 : 16 + COUNT]) is None
