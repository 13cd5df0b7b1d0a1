"""Every collective, 1 to 9 ranks: well-formed, and equal to its plain meaning in any order."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcpd.numerics.elements import STORAGE
from dlcpd.numerics.reduce import OPERATIONS, supports
from dlcpd.schedules.draft import LONGEST
from dlcpd.schedules.model import NOT_REPLICATED, Buffer, Receive, Send, Transfer, replicated
from dlcpd.schedules.proof.check import check
from dlcpd.schedules.proof.interpreter import interpret
from tests.numerics.plain import canonical, draw, draw_exact
from tests.schedules.collectives import (
    CHUNK,
    Case,
    all_reduces,
    between_pairs,
    every,
    hosts_of,
    of_parts,
)

WORLDS = range(1, 10)
# In rank order whatever the schedule's shape, so equal bit for bit for any elements.
IN_RANK_ORDER = {"direct", "one_shot", "reduce_direct", "reduce_scatter", "hierarchical1"}
SUPPORTED = [(dtype, op) for dtype in STORAGE for op in OPERATIONS if supports(dtype, op)]


def parts_of(case: Case, name: str, dtype: str, seed: int) -> list[np.ndarray]:
    item = STORAGE[dtype].itemsize
    make = draw if name in IN_RANK_ORDER else draw_exact
    return [make(dtype, size // item, seed + r) for r, size in enumerate(case.inputs)]


def assert_meaning(case: Case, name: str, dtype: str, op: str, seed: int) -> None:
    parts = parts_of(case, name, dtype, seed)
    expected = [canonical(raw, dtype) for raw in case.meaning(parts, dtype, op)]
    for input_at in (None, case.input_at) if case.input_at else (None,):
        inputs = [np.frombuffer(part.tobytes(), np.uint8) for part in parts]  # read only
        got = interpret(
            case.programs,
            inputs,
            outputs=case.outputs,
            dtype=dtype,
            op=op,
            input_at=input_at,
            seed=seed,
        )
        assert [canonical(out.tobytes(), dtype) for out in got] == expected, name


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("elements", [0, 1, 15, 16, 77, 300])
def test_is_well_formed_apart_and_in_place(world: int, elements: int) -> None:
    for case in every(world, elements * 4, world + elements, 4).values():
        check(case.programs, case.inputs, case.outputs)
        if case.input_at:
            check(case.programs, case.inputs, case.outputs, input_at=case.input_at)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("dtype", sorted(STORAGE))
def test_gives_what_the_collective_means(world: int, dtype: str) -> None:
    item, ops = STORAGE[dtype].itemsize, [op for d, op in SUPPORTED if d == dtype]
    for elements in (1, 77):
        cases = every(world, elements * item, world + elements, item)
        for at, (name, case) in enumerate(cases.items()):
            op = ops[(at + world) % len(ops)]
            assert_meaning(case, name, dtype, op, seed=at)


@settings(max_examples=60)
@given(st.integers(1, 9), st.integers(0, 400), st.integers(0, 1 << 30), st.data())
def test_the_result_does_not_depend_on_the_order(
    world: int, elements: int, seed: int, data: st.DataObject
) -> None:
    dtype, op = data.draw(st.sampled_from(SUPPORTED))
    cases = every(world, elements * STORAGE[dtype].itemsize, seed, STORAGE[dtype].itemsize)
    name = data.draw(st.sampled_from(sorted(cases)))
    for order in range(3):
        assert_meaning(cases[name], name, dtype, op, seed + order)


@pytest.mark.parametrize("world", WORLDS)
def test_all_ranks_have_the_same_bytes(world: int) -> None:
    """Of 0.0 and -0.0 a maximum may be either, by the order; but the same one everywhere."""
    parts = [draw("float32", 200, seed).view(np.uint8) for seed in range(world)]
    for name, case in all_reduces(world, 800).items():
        got = interpret(case.programs, parts, outputs=case.outputs, dtype="float32", op="max")
        assert len({out.tobytes() for out in got}) == 1, name


@pytest.mark.parametrize("world", WORLDS)
def test_every_rank_has_every_piece_of_an_all_reduce(world: int) -> None:
    for case in all_reduces(world, 4 * 777).values():
        for program in case.programs:
            sizes = {
                step.piece: replicated(step).size
                for step in program.steps
                if not isinstance(step, Send) and step.piece != NOT_REPLICATED
            }
            assert sum(sizes.values()) == 4 * 777


@pytest.mark.parametrize("world", WORLDS)
def test_transfers_of_an_all_reduce_know_where_in_the_tensor_they_belong(world: int) -> None:
    """Of the result's bytes as of the partial sums of scratch: their traffic class hangs on it."""
    for name, case in all_reduces(world, 4 * 777).items():
        for rank, program in enumerate(case.programs):
            for step in program.steps:
                if isinstance(step, Send):
                    there = case.programs[step.peer]
                    other = there.steps[there.receives[rank, step.index]]
                    assert isinstance(other, Receive)
                    assert step.origin == other.origin, name
                if isinstance(step, Transfer) and step.span.buffer < Buffer.SCRATCH:
                    assert step.origin == step.span.start, name


@cache
def cases_beyond_a_transfer() -> dict[str, Case]:
    much = LONGEST + 64
    return {
        **all_reduces(3, much, LONGEST),
        **of_parts((much, 0, 64), 1),
        **between_pairs([(much, 64, 0), (much, much, 64), (0, 0, 64)]),
    }


@pytest.mark.parametrize("name", ["all_gather", "exchange", "one_shot", "gather", "all_to_all"])
def test_what_is_longer_than_a_transfer_is_several(name: str) -> None:
    case = cases_beyond_a_transfer()[name]
    check(case.programs, case.inputs, case.outputs)
    sends = [s for program in case.programs for s in program.steps if isinstance(s, Send)]
    assert max(send.span.size for send in sends) == LONGEST
    assert_meaning(case, name, "uint8", "max", seed=1)


@pytest.mark.parametrize("world", range(2, 10))
def test_direct_sends_no_more_than_it_must(world: int) -> None:
    size = 64 * world * 12
    for program in all_reduces(world, size)["direct"].programs:
        owed = sum(program.outgoing.values())
        assert owed == 2 * size * (world - 1) // world


def test_results_of_direct_follow_one_chunk_behind_the_contributions() -> None:
    program = all_reduces(2, 2 * 3 * CHUNK)["direct"].programs[0]
    lossy = [step.lossy for step in program.steps if isinstance(step, Send)]
    assert lossy == [True, True, False, True, False, False]


def test_only_contributions_are_lossy() -> None:
    for name, case in every(4, 4096, 1, 4).items():
        sends = [s for program in case.programs for s in program.steps if isinstance(s, Send)]
        assert any(send.lossy for send in sends) == (name in ("direct", "reduce_scatter")), name


@pytest.mark.parametrize("each", [1, 2, 4])
def test_hierarchical_sends_its_share_between_hosts(each: int) -> None:
    """Of what a host owes to other hosts, each of its ranks sends as much."""
    world, size = 8, 64 * 8 * 16
    host_of = {r: at for at, ranks in enumerate(hosts_of(world, each)) for r in ranks}
    hosts = world // each
    for rank, program in enumerate(all_reduces(world, size)[f"hierarchical{each}"].programs):
        away = sum(n for p, n in program.outgoing.items() if host_of[p] != host_of[rank])
        assert away == 2 * size * (hosts - 1) // hosts // each


def test_programs_are_built_once() -> None:
    one, two = (all_reduces(3, 4096)["direct"].programs[0] for _ in range(2))
    assert one is two
