"""Forests: bad ones are refused, and programs over random ones are well-formed and add right."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcpd.schedules.builders import all_reduce, forest, reduce, reduce_scatter
from dlcpd.schedules.forest import ROOT, UNIT, BadForest, Forest, Tree, split
from dlcpd.schedules.model import Buffer, Program, Receive, Send
from dlcpd.schedules.proof.check import check
from dlcpd.schedules.proof.interpreter import interpret
from tests.schedules.collectives import CHUNK, Case, reduced
from tests.schedules.test_builders import assert_meaning

Draw = st.DrawFn


def star(world: int, root: int, share: int) -> Tree:
    return Tree(share, tuple(ROOT if r == root else root for r in range(world)))


def equal_stars(world: int, chunk: int = CHUNK) -> Forest:
    each, more = divmod(UNIT, world)
    return Forest(tuple(star(world, r, each + (r < more)) for r in range(world)), chunk)


@st.composite
def trees_from(draw: Draw, world: int, roots: list[int]) -> Forest:
    """A random tree for each of `roots`, with random shares."""
    cuts = st.integers(1, UNIT - 1)
    few = len(roots) - 1
    at = [0, *sorted(draw(st.lists(cuts, min_size=few, max_size=few, unique=True))), UNIT]
    trees = []
    for number, root in enumerate(roots):
        others = draw(st.permutations([r for r in range(world) if r != root]))
        placed, parents = [root], [ROOT] * world
        for rank in others:
            parents[rank] = draw(st.sampled_from(placed))
            placed.append(rank)
        trees.append(Tree(at[number + 1] - at[number], tuple(parents)))
    return Forest(tuple(trees), CHUNK, draw(st.sampled_from((0, 2, 3))))


def cases(world: int, size: int, sizes: tuple[int, ...], of: dict[str, Forest]) -> dict[str, Case]:
    """All collectives over `of`: any roots, every root, and root 0 alone."""
    ranks, total = range(world), sum(sizes)
    each, whole, at = [size] * world, [total] * world, [sum(sizes[:r]) for r in ranks]
    on_root = [size * (not r) for r in ranks]

    def part(raw: bytes, rank: int) -> bytes:
        return raw[at[rank] : at[rank] + sizes[rank]]

    def programs(build: str, *given: object) -> list[Program]:
        return [getattr(forest, build)(r, *given) for r in ranks]

    return {
        "all_reduce": Case(
            programs("all_reduce", size, of["any"]),
            each,
            each,
            lambda p, dtype, op: [reduced(p, dtype, op)] * world,
            [0] * world,
        ),
        "reduce_scatter": Case(
            programs("reduce_scatter", sizes, of["every"]),
            whole,
            list(sizes),
            lambda p, dtype, op: [part(reduced(p, dtype, op), r) for r in ranks],
            [-a for a in at],
        ),
        "all_gather": Case(
            programs("all_gather", sizes, of["every"]),
            list(sizes),
            whole,
            lambda p, dtype, op: [b"".join(one.tobytes() for one in p)] * world,
            at,
        ),
        "broadcast": Case(
            programs("broadcast", size, 0, of["zero"]),
            on_root,
            each,
            lambda p, dtype, op: [p[0].tobytes()] * world,
            [0] * world,
        ),
        "reduce": Case(
            programs("reduce", size, 0, of["zero"]),
            each,
            on_root,
            lambda p, dtype, op: [reduced(p, dtype, op) if not r else b"" for r in ranks],
            [0] * world,
        ),
    }


@settings(max_examples=40)
@given(st.integers(1, 12), st.integers(0, 150), st.data())
def test_programs_over_random_forests_are_proven_and_add_right(
    world: int, elements: int, data: st.DataObject
) -> None:
    ranks = st.integers(0, world - 1)
    of = {
        "any": data.draw(trees_from(world, data.draw(st.lists(ranks, min_size=1, max_size=4)))),
        "every": data.draw(trees_from(world, [*range(world), data.draw(ranks)])),
        "zero": data.draw(trees_from(world, [0] * data.draw(st.integers(1, 3)))),
    }
    sizes = tuple(
        4 * n for n in data.draw(st.lists(st.integers(0, 60), min_size=world, max_size=world))
    )
    odd = tuple(n // 3 for n in sizes)
    for case in [*cases(world, elements, odd, of).values(), *cases(world, 1, odd, of).values()]:
        check(case.programs, case.inputs, case.outputs, input_at=case.input_at)
    for name, case in cases(world, 4 * elements, sizes, of).items():
        check(case.programs, case.inputs, case.outputs)
        check(case.programs, case.inputs, case.outputs, input_at=case.input_at)
        # another name than that of `direct`: exact values, since deep trees add in another order
        assert_meaning(case, f"forest_{name}", "float32", "sum", seed=elements)
        for program in case.programs:
            for step in program.steps:
                if isinstance(step, Send) and step.lossy:
                    assert step.span.buffer == Buffer.INPUT


@pytest.mark.parametrize("world", range(1, 13))
@pytest.mark.parametrize("size", [0, 1, 63, 1000, 4096, 10007])
def test_equal_stars_give_the_programs_of_direct_step_by_step(world: int, size: int) -> None:
    stars = equal_stars(world)
    sizes = tuple(size * (r % 3) // 2 for r in range(world))
    one = Forest((star(world, world - 1, UNIT),), CHUNK)
    for r in range(world):
        pairs = [
            (forest.all_reduce(r, size, stars), all_reduce.direct(r, world, size, CHUNK)),
            (
                forest.reduce_scatter(r, sizes, stars),
                reduce_scatter.reduce_scatter(r, sizes, CHUNK),
            ),
            (
                forest.reduce(r, size, world - 1, one),
                reduce.direct(r, world, size, world - 1, CHUNK),
            ),
        ]
        for made, today in pairs:
            assert (made.steps, made.peers, made.scratch) == (
                today.steps,
                today.peers,
                today.scratch,
            )


def test_one_hop_adds_in_the_order_of_ranks_whatever_the_shares() -> None:
    made = Forest((star(3, 2, 4000), star(3, 0, 96)), CHUNK)
    values = [np.array([v] * 500, np.float32) for v in (1e8, -1e8, 1.0)]
    case = cases(
        3,
        2000,
        (0, 0, 0),
        {"any": made, "every": equal_stars(3), "zero": Forest((star(3, 0, UNIT),), CHUNK)},
    )["all_reduce"]
    got = interpret(
        case.programs,
        [v.view(np.uint8) for v in values],
        outputs=case.outputs,
        dtype="float32",
        op="sum",
    )
    assert all((out.view(np.float32) == 1.0).all() for out in got)
    assert all(tree.one_hop for tree in made.trees)


@pytest.mark.parametrize(
    ("share", "parents", "why"),
    [
        (0, (ROOT,), "a share of 0"),
        (UNIT + 1, (ROOT,), "a share of 4097"),
        (1, (1, 0), "0 ranks have no parent"),
        (1, (ROOT, ROOT), "2 ranks have no parent"),
        (1, (ROOT, 2), "rank 1 has parent 2"),
        (1, (ROOT, -2), "rank 1 has parent -2"),
        (1, (ROOT, 2, 1), "rank 1 does not reach"),
    ],
)
def test_a_bad_tree_is_refused(share: int, parents: tuple[int, ...], why: str) -> None:
    with pytest.raises(BadForest, match=why):
        Tree(share, parents)


@pytest.mark.parametrize(
    ("trees", "chunk", "why"),
    [
        ((), 64, "at least one tree"),
        ((star(2, 0, UNIT - 1),), 64, "add up to 4095"),
        ((star(2, 0, 1), star(3, 0, UNIT - 1)), 64, "tree 1 has 3 ranks"),
        ((star(2, 0, UNIT),), 0, "chunks of 0 B"),
        ((star(2, 0, UNIT),), 65, "chunks of 65 B"),
        ((star(2, 0, UNIT),), 8 << 20, "chunks of 8388608 B"),
    ],
)
def test_a_bad_forest_is_refused(trees: tuple[Tree, ...], chunk: int, why: str) -> None:
    with pytest.raises(BadForest, match=why):
        Forest(trees, chunk)


@given(st.integers(1, 9), st.data())
def test_ranks_meet_their_neighbours_and_these_connect_all(world: int, data: st.DataObject) -> None:
    """Even if nothing is sent, ranks that disagree have a way to each other."""
    roots = data.draw(st.lists(st.integers(0, world - 1), min_size=1, max_size=3))
    made = data.draw(trees_from(world, roots))
    peers = [forest.all_reduce(rank, 0, made).peers for rank in range(world)]
    ways = {(a, b) for tree in made.trees for a, b in enumerate(tree.parents) if b != ROOT}
    assert {(a, b) for a in range(world) for b in peers[a]} == ways | {(b, a) for a, b in ways}
    reached, waiting = {0}, [0]
    while waiting:
        more = peers[waiting.pop()] - reached
        reached |= more
        waiting += more
    assert reached == set(range(world))


def test_results_come_a_row_after_the_contributions_at_the_least() -> None:
    with pytest.raises(BadForest, match="1 rows ahead: 2 or more, or 0"):
        Forest((star(2, 0, UNIT),), 64, ahead=1)


@pytest.mark.parametrize("ahead", [0, 2, 3])
def test_contributions_are_so_many_rows_ahead_of_results(ahead: int) -> None:
    trees = (star(3, 0, UNIT // 2), star(3, 1, UNIT // 2))
    steps = forest.all_reduce(2, 10 * CHUNK, Forest(trees, CHUNK, ahead)).steps
    for root in (0, 1):
        sends = [s for s in steps if isinstance(s, Send) and s.peer == root]
        results = [at for at, s in enumerate(steps) if isinstance(s, Receive) and s.peer == root]
        free = ahead or len(sends)
        assert len(sends) == len(results) == 5
        waited = [(at,) for at in results[: len(sends) - free]]
        assert [send.after for send in sends] == [()] * free + waited


def test_a_forest_that_does_not_suit_a_collective_is_refused() -> None:
    one = Forest((star(2, 0, UNIT),), 64)
    with pytest.raises(BadForest, match="tree 0 has root 0, the operation 1"):
        forest.broadcast(0, 8, 1, one)
    with pytest.raises(BadForest, match="rank 1 owns 8 B"):
        forest.all_gather(0, (8, 8), one)
    with pytest.raises(BadForest, match="3 sizes for a forest of 2"):
        forest.reduce_scatter(0, (8, 8, 8), one)


@given(st.integers(0, 1 << 20), st.lists(st.integers(1, UNIT), min_size=1, max_size=12))
def test_parts_follow_each_other_and_cover_the_tensor(size: int, weight: list[int]) -> None:
    at = 0
    for start, length in split(size, tuple(weight)):
        assert start == at
        assert length >= 0
        at += length
    assert at == size
