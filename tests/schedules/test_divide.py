"""Parts of an operation: together they do what the whole does, and no byte twice."""

from dataclasses import dataclass

import numpy as np
import pytest

from dlcpd.contract.collectives import COLLECTIVES, Share
from dlcpd.schedules.catalog import CATALOG, Place, Task
from dlcpd.schedules.choose import choose
from dlcpd.schedules.derive import FOREST
from dlcpd.schedules.divide import part_of
from dlcpd.schedules.layout import ALIGNMENT
from dlcpd.schedules.model import Buffer, Program, Receive, Reduce, Transfer
from dlcpd.schedules.proof.check import check
from dlcpd.schedules.proof.interpreter import interpret
from tests.schedules.networks import uneven

CHUNK = 1 << 10  # bytes
LARGE = (9 << 20) + 64  # bytes: three transfers of 4 MiB at most


@dataclass(frozen=True)
class Case:
    """A collective of `world` ranks, with the bytes that each gives and gets."""

    task: Task
    inputs: list[int]
    outputs: list[int]
    schedule: str | None = None

    def programs(self, share: Share) -> list[Program]:
        world = len(self.inputs)
        hosts = tuple((rank,) for rank in range(world))
        network = uneven(world) if self.schedule == FOREST else None
        return [
            choose(self.task, Place(rank, hosts, CHUNK, network), self.schedule, share).program
            for rank in range(world)
        ]


def cases(world: int) -> dict[str, Case]:
    size, parts = 10 * CHUNK + 64, (LARGE,) * world
    at_root = [world * LARGE if rank == 0 else 0 for rank in range(world)]
    found = {
        f"all_reduce_{name}": Case(
            Task(collective="all_reduce", size=size), [size] * world, [size] * world, name
        )
        for name in CATALOG["all_reduce"]
    }
    broadcast = Task(collective="broadcast", size=size)
    reduce = Task(collective="reduce", size=size)
    shards = Task(collective="reduce_scatter", sizes=(size,) * world)
    return found | {
        "broadcast": Case(broadcast, [size] * world, [size] * world),
        "reduce": Case(reduce, [size] * world, [size * (rank == 0) for rank in range(world)]),
        "all_gather": Case(
            Task(collective="all_gather", sizes=parts), [LARGE] * world, [world * LARGE] * world
        ),
        "gather": Case(Task(collective="gather", sizes=parts), [LARGE] * world, at_root),
        "scatter": Case(Task(collective="scatter", sizes=parts), at_root, [LARGE] * world),
        "reduce_scatter": Case(shards, [world * size] * world, [size] * world),
    }


def written(program: Program) -> list[tuple[int, int]]:
    """Where it writes OUTPUT: [start, stop) in bytes, in order."""
    targets = [
        step.target if isinstance(step, Reduce) else step.span
        for step in program.steps
        if isinstance(step, Reduce | Receive)
    ]
    return sorted((s.start, s.start + s.size) for s in targets if s.buffer == Buffer.OUTPUT)


@pytest.mark.parametrize("parts", [2, 3])
@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("name", cases(2))
def test_parts_together_do_what_the_whole_does(name: str, world: int, parts: int) -> None:
    case, rng = cases(world)[name], np.random.default_rng(7)
    inputs = [rng.integers(0, 256, size, np.uint8) for size in case.inputs]
    wanted = interpret(
        case.programs(Share()), inputs, outputs=case.outputs, dtype="int32", op="sum"
    )
    seen = [np.zeros(size, np.uint8) for size in case.outputs]
    for number in range(parts):
        programs = case.programs(Share(number, parts))
        assert any(program.steps for program in programs), "a part with nothing to do"
        check(programs, case.inputs, case.outputs)
        found = interpret(programs, inputs, outputs=case.outputs, dtype="int32", op="sum")
        for rank, program in enumerate(programs):
            for start, stop in {(a, b) for a, b in written(program)}:
                assert np.array_equal(found[rank][start:stop], wanted[rank][start:stop])
                seen[rank][start:stop] += 1
    for rank, program in enumerate(case.programs(Share())):
        whole = np.zeros_like(seen[rank])
        for start, stop in written(program):
            whole[start:stop] = 1
        assert np.array_equal(seen[rank], whole), "each byte is written by one part"


@pytest.mark.parametrize(
    "name", [name for name, case in cases(2).items() if COLLECTIVES[case.task.collective].by_range]
)
def test_what_lies_where_in_the_tensor_does_not_change(name: str) -> None:
    """Layers, bounds and exempt ranges count from the start of the operation's tensor."""
    case = cases(2)[name]
    for number in range(2):
        start, size = part_of(case.task.size, Share(number, 2))
        for program in case.programs(Share(number, 2)):
            for step in program.steps:
                if isinstance(step, Transfer):
                    assert start <= step.origin and step.origin + step.span.size <= start + size


def test_ranges_are_aligned_disjoint_and_cover_everything() -> None:
    for size in (0, 4, 64, 100, 1000, 4096):
        for of in (1, 2, 3, 8):
            ranges = [part_of(size, Share(number, of)) for number in range(of)]
            assert sum(length for _, length in ranges) == size
            at = 0
            for start, length in ranges:
                assert start == at and (start % ALIGNMENT == 0 or start == size)
                at += length


def test_both_ends_know_which_part_they_run() -> None:
    case = cases(2)["broadcast"]
    hosts = ((0,), (1,))
    marks = {
        choose(case.task, Place(rank, hosts, CHUNK), None, Share(number, 2)).fingerprint
        for rank in range(2)
        for number in range(2)
    }
    assert len(marks) == 2
