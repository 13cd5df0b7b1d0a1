"""The choice of a schedule: its rules, its override, and a fingerprint that all ranks share."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.schedules.catalog import CATALOG, LEAST_CHUNK, LONG, Place, Task
from dlcpd.schedules.choose import FEW, MAX_FAN_IN, MOST_OF_PAIR, SMALL, choose
from dlcpd.schedules.derive import FOREST
from dlcpd.schedules.draft import LONGEST
from dlcpd.schedules.errors import UnknownSchedule
from dlcpd.schedules.model import Reduce, Send
from dlcpd.schedules.proof.check import check
from tests.schedules.collectives import hosts_of
from tests.schedules.networks import uneven

CHUNK = 1 << 20


def place(world: int, each: int = 1, rank: int = 0) -> Place:
    return Place(rank, hosts_of(world, each), CHUNK)


@pytest.mark.parametrize(
    ("world", "each", "size", "lossy", "expected"),
    [
        (2, 1, SMALL, False, "one_shot"),
        (2, 1, MOST_OF_PAIR, False, "one_shot"),
        (2, 1, MOST_OF_PAIR + 4, False, "direct"),
        (3, 1, SMALL + 4, False, "direct"),
        (2, 1, SMALL, True, "direct"),  # each rank might miss another part
        (5, 1, MAX_FAN_IN // 4, False, "one_shot"),
        (6, 1, MAX_FAN_IN // 4, False, "direct"),
        (8, 4, 1 << 20, False, "hierarchical"),
        (8, 4, 1 << 20, True, "direct"),  # whose contributions alone may be lost
        (8, 4, 64, False, "one_shot"),
        (8, 8, 1 << 20, False, "direct"),  # one host
        (7, 3, 1 << 20, False, "direct"),  # a host of one rank
        (8, 3, 1 << 20, False, "hierarchical"),
    ],
)
def test_all_reduce(world: int, each: int, size: int, lossy: bool, expected: str) -> None:
    task = Task(collective="all_reduce", size=size, lossy=lossy)
    choice = choose(task, place(world, each))
    assert choice.name == expected
    assert choice.why


@pytest.mark.parametrize(
    ("size", "chunk"),
    [
        (1 << 20, 512 << 10),  # a whole shard
        (4 << 20, LEAST_CHUNK),
        (64 << 20, 2 << 20),  # as configured
        (12 << 20, 1536 << 10),
        (12 << 20 | 64, (1536 << 10) + 64),
    ],
)
def test_chunks_are_so_small_that_phases_overlap(size: int, chunk: int) -> None:
    here = replace(place(2), chunk_bytes=2 << 20)
    program = choose(Task(collective="all_reduce", size=size), here).program
    assert max(step.span.size for step in program.steps if isinstance(step, Send)) == chunk


@pytest.mark.parametrize(
    ("size", "chunk"),
    [(256 << 10, 256 << 10), (1 << 20, 256 << 10), (4 << 20, 512 << 10), (64 << 20, 2 << 20)],
)
def test_long_paths_have_smaller_chunks(size: int, chunk: int) -> None:
    far = replace(place(2), chunk_bytes=2 << 20, round_trip=LONG)
    task = Task(collective="all_reduce", size=size)
    sizes = [step.span.size for step in choose(task, far).program.steps if isinstance(step, Send)]
    assert max(sizes) == chunk
    near = choose(task, replace(far, round_trip=LONG - 1))
    assert (near.fingerprint == choose(task, far).fingerprint) == (chunk in (size, 2 << 20))


def test_no_chunk_is_longer_than_a_transfer() -> None:
    large = replace(place(2), chunk_bytes=16 << 20)
    for collective in ("all_reduce", "reduce_scatter", "broadcast"):
        task = Task(collective=collective, size=64 << 20, sizes=(32 << 20,) * 2)
        steps = choose(task, large).program.steps
        reduced = [step.target.size for step in steps if isinstance(step, Reduce)]
        assert max(reduced) == LONGEST


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
def test_to_and_from_a_root(collective: str) -> None:
    for world, size, expected in [
        (FEW, 1 << 30, "direct"),
        (FEW + 1, MAX_FAN_IN // FEW, "direct"),
        (FEW + 1, MAX_FAN_IN // FEW + 4, "tree"),
    ]:
        task = Task(collective=collective, size=size)
        assert choose(task, place(world)).name == expected


@pytest.mark.parametrize(
    ("collective", "name"),
    [(c, name) for c, recipes in CATALOG.items() if c != "receive" for name in recipes],
)
@pytest.mark.parametrize("world", [2, 5])
def test_every_schedule_can_be_asked_for_and_is_well_formed(
    collective: str, name: str, world: int
) -> None:
    size, root = 4096, world - 1
    sizes = (size,) * world
    task = Task(
        collective=collective,
        size=size,
        sizes=sizes,
        root=root,
        peer=1,
        sends=sizes,
        receives=sizes,
    )
    network = uneven(world) if name == FOREST else None
    places = [replace(place(world, 1, rank), network=network) for rank in range(world)]
    choices = [choose(task, each, name) for each in places]
    if collective == "send":  # "receive" is its other end
        other = replace(task, collective="receive", peer=0)
        choices = [choices[0], choose(other, place(world, 1, 1), name)]
    assert {choice.name for choice in choices} == {name}
    assert len({choice.fingerprint for choice in choices}) == 1
    programs, most = [choice.program for choice in choices], [size * world] * world
    check(programs, most, most)


TASKS = st.fixed_dictionaries(
    {
        "collective": st.sampled_from(sorted(CATALOG)),
        "size": st.sampled_from([0, 64, 1 << 20]),
        "sizes": st.sampled_from([(0, 64, 64, 0, 8), (64, 0, 64, 0, 8), (64, 64, 64, 64, 8)]),
        "root": st.integers(0, 4),
        "lossy": st.booleans(),
    }
)


@given(TASKS, TASKS, st.integers(1, 4), st.integers(1, 4))
def test_equal_fingerprints_mean_equal_programs(
    one: dict[str, Any], two: dict[str, Any], each: int, other: int
) -> None:
    own: dict[str, Any] = {"peer": 1, "sends": (8,) * 5, "receives": (8,) * 5}
    choices = [
        [choose(Task(**task, **own), place(5, hosts, rank)) for rank in (0, 3)]
        for task, hosts in ((one, each), (two, other))
    ]
    first, second = choices
    for pair in choices:
        assert pair[0].fingerprint == pair[1].fingerprint  # of two ranks
        assert 0 <= pair[0].fingerprint < 1 << 64
    if one["collective"] == two["collective"]:
        same = [a.program.steps == b.program.steps for a, b in zip(first, second, strict=True)]
        assert (first[0].fingerprint != second[0].fingerprint) or all(same)


def test_what_one_rank_alone_knows_is_not_in_the_fingerprint() -> None:
    prints = {
        choose(Task(collective="all_to_all", sends=own, receives=own), place(2)).fingerprint
        for own in ((0, 4), (8, 8))
    }
    assert len(prints) == 1


@pytest.mark.parametrize(
    ("collective", "schedule", "why"),
    [("all_reduce", "rings", "one of direct, one_shot, ring"), ("allreduce", None, "one of all_")],
)
def test_what_is_unknown_is_refused(collective: str, schedule: str | None, why: str) -> None:
    with pytest.raises(UnknownSchedule, match=why):
        choose(Task(collective=collective), place(2), schedule)


def test_a_client_adds_its_part_in_the_direct_schedule_only() -> None:
    task = Task(collective="reduce_scatter", sizes=(4096, 8192), adds=True)
    assert (
        choose(task, place(2)).fingerprint
        == choose(replace(task, adds=False), place(2)).fingerprint
    )
    with pytest.raises(UnknownSchedule, match="adds its part only in schedule direct, not forest"):
        choose(task, place(2), "forest")
