"""Rows of `bench schedules`."""

from typing import Any

import pytest

from dlcp_client.fused.language.kernels import KERNELS as KNOWN_KERNELS
from dlcp_lab.bench.schedules import HEADER, KERNELS, PROGRAMS, cells, choices, rows_of
from dlcp_lab.bench.schedules_rank import PROGRAMS as KNOWN

RANKS: list[dict[str, Any]] = [
    {
        "chosen": "two",
        "rows": [("two", 0.5, 2.5), ("one", 0.75, 0.0)],
        "seconds": {"one": [2.0, 4.0, 2.0], "two": [3.0 + rank, 3.0, 9.0]},
    }
    for rank in range(2)
]


def test_a_run_counts_from_the_call_of_the_last_rank() -> None:
    rows = {row.candidate: row for row in rows_of("adam", 1 << 20, RANKS)}
    assert rows["two"].samples == [3.0, 3.0, 9.0], "the least of the ranks"
    assert (rows["one"].over_best, rows["two"].over_best) == (1.0, 1.5)
    assert [row.chosen for row in rows.values()] == [True, False]
    assert all(len(cells(row)) == len(HEADER) for row in rows.values())
    assert list(choices(list(rows.values()))) == [
        "adam, 1M: the tuner chose two, 1.50 x the fastest"
    ]


def test_names_are_those_of_the_ranks_and_of_the_language() -> None:
    assert set(PROGRAMS) == set(KNOWN)
    assert set(KERNELS) == set(KNOWN_KERNELS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_have_the_size(name: str) -> None:
    program = KNOWN[name](1 << 20, 8)
    [reduced] = [n for n in program.graph.nodes if n.name in program.named("all_reduce")]
    assert reduced.meta["val"].nbytes == 1 << 20
