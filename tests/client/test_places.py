"""Where the arrays of an operation lie in the arena."""

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from dlcp_client.arena.memory import COMMIT_STEP, SharedArena
from dlcp_client.arena.tensors import TENSORS
from dlcp_client.operations.operation import Operation, Placed
from dlcp_client.operations.places import Places
from dlcp_client.operations.requests import request
from dlcpd.contract.arena import aligned

SIZE = COMMIT_STEP
PART = 16  # float32: 64 B, the unit of the engine's offsets


@pytest.fixture
def arena() -> Iterator[SharedArena]:
    descriptor = os.memfd_create("arena")
    os.ftruncate(descriptor, SIZE)
    made = SharedArena(descriptor, SIZE)
    yield made
    made.close()


def placed(
    arena: SharedArena, collective: str, output: Any, input: Any, own: int
) -> tuple[Placed, Placed]:
    """The places of input and output."""
    nothing: Any = None  # no device, and no wait for room
    table: Any = SimpleNamespace(memory=SimpleNamespace(releases=0))
    places = Places(arena, nothing, table, nothing, None)
    given, made = TENSORS.block(input), TENSORS.block(output)
    operation = Operation(request(collective, given, peer=0), made, given, own=own)
    return places.find(operation, 0.0)


def values(place: Placed) -> list[float]:
    return torch.frombuffer(place.region.memory, dtype=torch.float32).tolist()  # type: ignore[union-attr]


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("collective", ["all_gather", "gather"])
def test_an_input_lies_in_its_part_of_the_output(
    collective: str, rank: int, arena: SharedArena
) -> None:
    mine, output = torch.arange(float(PART)), torch.zeros(3 * PART)
    source, target = placed(arena, collective, output, mine, rank * PART)
    assert source.offset == target.offset + rank * mine.nbytes
    assert values(target)[rank * PART : (rank + 1) * PART] == mine.tolist()
    assert arena.used == aligned(output.nbytes)


@pytest.mark.parametrize("rank", [0, 2])
def test_an_output_lies_in_its_part_of_the_input(rank: int, arena: SharedArena) -> None:
    whole, output = torch.arange(3.0 * PART), torch.zeros(PART)
    source, target = placed(arena, "scatter", output, whole, rank * PART)
    assert target.offset == source.offset + rank * output.nbytes
    assert values(target) == whole[rank * PART : (rank + 1) * PART].tolist()
    assert arena.used == aligned(whole.nbytes)
    del source
    assert arena.used == aligned(whole.nbytes)  # for as long as the part is in use
    del target
    assert arena.used == 0


@pytest.mark.parametrize(
    ("own", "count", "reason"),
    [
        (PART // 2, 3 * PART, "not aligned"),
        (3 * PART, 3 * PART, "behind the end"),
        (2 * PART + 16, 3 * PART + 8, "beyond the end"),
        (-1, 3 * PART, "no part"),
    ],
)
def test_arrays_lie_apart(own: int, count: int, reason: str, arena: SharedArena) -> None:
    mine, output = torch.arange(float(PART)), torch.zeros(count)
    source, target = placed(arena, "all_gather", output, mine, own)
    first, last = sorted((source, target), key=lambda place: place.offset)
    assert first.offset + len(cast("Any", first.region)) <= last.offset, reason
    assert values(source) == mine.tolist()


def test_arrays_in_the_arena_stay_in_place(arena: SharedArena) -> None:
    mine, output = torch.arange(float(PART)), TENSORS.empty(arena, (3 * PART,), None)
    source, target = placed(arena, "all_gather", output, mine, PART)
    assert target.direct and not source.direct
    assert target.offset == arena.offset_of(output.data_ptr())


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter"])
def test_a_part_of_the_other_array_is_not_copied(
    collective: str, rank: int, arena: SharedArena
) -> None:
    whole = TENSORS.empty(arena, (3 * PART,), None)
    mine, used = whole[rank * PART : (rank + 1) * PART], arena.used
    both = (whole, mine) if collective == "all_gather" else (mine, whole)
    source, target = placed(arena, collective, *both, rank * PART)
    assert source.direct and target.direct and arena.used == used
    assert abs(source.offset - target.offset) == rank * mine.nbytes


@pytest.mark.parametrize(("start", "own"), [(PART, 0), (PART, -1), (8, 8), (2 * PART + 8, PART)])
def test_another_part_of_the_other_array_is_copied(
    start: int, own: int, arena: SharedArena
) -> None:
    """It is another rank's, of no rank, or not aligned."""
    whole = TENSORS.empty(arena, (3 * PART + 8,), None)
    mine = whole[start : start + PART]
    source, target = placed(arena, "all_gather", whole, mine, own)
    assert target.direct and not source.direct
    assert values(source) == mine.tolist()


def test_no_array_without_elements_is_a_part(arena: SharedArena) -> None:
    source, target = placed(arena, "all_gather", torch.zeros(PART), torch.zeros(0), 0)
    assert (source.region, len(cast("Any", target.region))) == (None, PART * 4)
