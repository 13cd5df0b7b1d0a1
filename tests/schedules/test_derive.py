"""Forests derived from networks: their gain, their chunks, and when there is none."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcpd.contract.collectives import Share
from dlcpd.schedules.catalog import CATALOG, Place, Task, derived
from dlcpd.schedules.choose import choose
from dlcpd.schedules.derive import (
    FOREST,
    LEAST_CHUNK,
    LEAST_CODED,
    MOST_CHUNKS,
    MOST_RANKS,
    WAYS,
    Derived,
    Exchange,
    derive,
    effect,
    gain_over,
)
from dlcpd.schedules.draft import LONGEST
from dlcpd.schedules.errors import UnknownSchedule
from dlcpd.schedules.layout import SEGMENT
from dlcpd.schedules.model import Reduce, Send
from dlcpd.schedules.network import JobNetwork
from dlcpd.schedules.proof.check import check
from tests.schedules.networks import network_of, uneven

SIZE = 4 << 20
MOST = 4 << 20  # bytes of a chunk
RACKS_2x2 = network_of([100] * 4, [(0, 2), (1, 3)], 50)
RACKS_2x4 = network_of([100] * 8, [(0, 2, 4, 6), (1, 3, 5, 7)], 50)
RACKS_4x16 = network_of([100] * 64, [tuple(range(k, 64, 4)) for k in range(4)], 50)


def of(network: JobNetwork, collective: str, size: int = SIZE) -> Derived:
    world = len(network.hosts)
    parts = collective in ("reduce_scatter", "all_gather")
    sizes = (size // world,) * world if parts else (size,)
    schedule = "tree" if collective in ("broadcast", "reduce") and world > 4 else "direct"
    hosts = tuple((rank,) for rank in range(world))
    found = derive(network, hosts, Exchange(collective, sizes), schedule, MOST)
    assert found is not None
    return found


def placed(network: JobNetwork, rank: int = 0, ranks: Sequence[int] = ()) -> Place:
    """`ranks`: the number of ranks of each host; default: one."""
    hosts, first = [], 0
    for count in ranks or (1,) * len(network.hosts):
        hosts.append(tuple(range(first, first + count)))
        first += count
    return Place(rank, tuple(hosts), MOST, network)


@pytest.mark.parametrize(
    ("network", "collective", "gain"),
    [
        (uneven(4), "all_reduce", 1.5),
        (uneven(8), "all_reduce", 1.75),
        (uneven(4), "broadcast", 3.0),
        (uneven(4), "reduce_scatter", 1.0),
        (network_of([100] * 4), "all_reduce", 1.0),
        (network_of([100] * 4), "reduce", 3.0),
        (RACKS_2x2, "all_reduce", 2.0),
        (RACKS_2x4, "all_reduce", 4.0),
        (RACKS_2x4, "reduce_scatter", 4.0),
        (RACKS_2x4, "all_gather", 4.0),
        (RACKS_4x16, "all_reduce", 16.0),
    ],
)
def test_gains(network: JobNetwork, collective: str, gain: float) -> None:
    assert float(of(network, collective).gain) == pytest.approx(gain, rel=0.02)


def test_on_long_paths_more_rows_are_on_their_way() -> None:
    hosts = tuple((rank,) for rank in range(8))
    near = Exchange("all_reduce", (SIZE,))
    found = [
        derive(RACKS_2x4, hosts, replace(near, round_trip=trip), "direct", MOST)
        for trip in (0, 1000, 50_000)
    ]
    assert [one.forest.ahead for one in found if one] == [2, 2, 7]


def test_the_binomial_tree_is_what_a_large_broadcast_is_compared_with() -> None:
    assert float(of(network_of([100] * 8), "broadcast").gain) == pytest.approx(3.0, rel=0.01)


@pytest.mark.parametrize("ranks", [(1,) * 6, (2, 1, 3, 2, 2, 1)], ids=["one", "several"])
@pytest.mark.parametrize("collective", WAYS)
def test_the_busiest_link_is_that_of_the_programs(collective: str, ranks: tuple[int, ...]) -> None:
    """The time is counted from trees; the programs of all ranks send the same bytes."""
    network = network_of([100, 60, 25, 100, 90, 40], [(0, 3), (1, 2, 4, 5)], 70)
    world, size, rack = sum(ranks), 1 << 20, (0, 1, 1, 0, 1, 1)
    sizes = _sizes(collective, size, world)
    task = Task(collective=collective, size=6 * size, sizes=sizes)
    place = placed(network, ranks=ranks)
    host_of = {rank: at for at, own in enumerate(place.hosts) for rank in own}
    out, into = defaultdict[int, int](int), defaultdict[int, int](int)
    up = defaultdict[int, int](int)
    for rank in range(world):
        for step in choose(task, replace(place, rank=rank), FOREST).program.steps:
            if isinstance(step, Send) and host_of[rank] != host_of[step.peer]:
                source, target = host_of[rank], host_of[step.peer]
                out[source] += step.span.size
                into[target] += step.span.size
                up[rack[source]] += step.span.size * (rack[source] != rack[target])
    loads = [*((out[host], network.out_bps[host]) for host in out)]
    loads += [(into[host], network.in_bps[host]) for host in into]
    loads += [(sent, 70_000_000) for sent in up.values()]
    seconds = max(Fraction(8 * sent, rate) for sent, rate in loads)
    found = derived(task, place, "direct")
    assert found is not None
    assert float(seconds) == pytest.approx(float(found.seconds), rel=0.01)


@pytest.mark.parametrize(
    ("collective", "schedule"),
    [("all_reduce", "hierarchical"), ("reduce_scatter", "direct"), ("all_gather", "direct")],
)
def test_bytes_between_hosts_do_not_grow_with_ranks(collective: str, schedule: str) -> None:
    """Of the same bytes on all hosts; what is there without a plan is known, too."""
    network, size = RACKS_2x2, 1 << 22
    found = []
    for each in (1, 2, 4):
        ranks = (each,) * 4
        sizes = _sizes(collective, size // (4 * each), 4 * each)
        task = Task(collective=collective, size=size, sizes=sizes)
        made = derived(task, placed(network, ranks=ranks), schedule)
        assert made is not None
        found.append(made)
    assert len({each.seconds for each in found}) == 1
    assert (found[2].without > 3 * found[0].without) == (schedule == "direct")


def test_all_ranks_of_a_host_add() -> None:
    task, place = Task(collective="all_reduce", size=SIZE), placed(RACKS_2x2, ranks=(2,) * 4)
    added = [
        sum(
            step.target.size
            for step in choose(task, replace(place, rank=rank)).program.steps
            if isinstance(step, Reduce)
        )
        for rank in range(8)
    ]
    assert max(added) < 1.1 * min(added)


def _sizes(collective: str, size: int, world: int) -> tuple[int, ...]:
    return (size,) * world if collective in ("reduce_scatter", "all_gather") else ()


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 400), min_size=2, max_size=9),
    st.integers(1, 400),
    st.sampled_from(sorted(WAYS)),
    st.integers(1, 1 << 22),
    st.data(),
)
def test_plans_of_random_networks(
    rates: list[int], uplink: int, collective: str, size: int, data: st.DataObject
) -> None:
    """All ranks choose alike, the programs are proven, and a forest that is chosen is no slower."""
    number = [data.draw(st.integers(0, 2)) for _ in rates]
    groups = [[r for r in range(len(rates)) if number[r] == k] for k in range(3)]
    network = network_of(rates, [g for g in groups if g], uplink)
    ranks = [data.draw(st.integers(1, 3)) for _ in rates]
    world = sum(ranks)
    sizes = tuple(data.draw(st.integers(0, size)) for _ in range(world))
    own = _sizes(collective, size, world) and sizes
    task = Task(collective=collective, size=size, sizes=own, lossy=data.draw(st.booleans()))
    choices = [choose(task, placed(network, rank, ranks)) for rank in range(world)]
    assert len({(choice.name, choice.fingerprint) for choice in choices}) == 1
    inputs, outputs = _both(collective, size, own, world)
    check([choice.program for choice in choices], inputs, outputs)
    found = derived(task, placed(network, ranks=ranks), "direct")
    if choices[0].name == FOREST:
        assert found is not None and found.gain > 1
    if found is not None:
        assert LEAST_CHUNK <= found.forest.chunk_bytes <= LONGEST
        programs = [choose(task, placed(network, rank, ranks), FOREST) for rank in range(world)]
        check([choice.program for choice in programs], inputs, outputs)


def _both(
    collective: str, size: int, sizes: tuple[int, ...], world: int
) -> tuple[list[int], list[int]]:
    whole, parts, root = [sum(sizes)] * world, list(sizes), [size, *[0] * (world - 1)]
    return {
        "all_reduce": ([size] * world, [size] * world),
        "reduce_scatter": (whole, parts),
        "all_gather": (parts, whole),
        "broadcast": (root, [size] * world),
        "reduce": ([size] * world, root),
    }[collective]


# --- chunks -----------------------------------------------------------------------------------


def test_chunks_follow_the_rate_and_the_size() -> None:
    """On a slow link the time of many transfers is short beside that of their bytes. Chunks are
    whole datagrams."""
    rates = (100, 1_000, 10_000, 100_000)
    chunks = [
        of(network_of([rate] * 4), "all_reduce", 64 << 20).forest.chunk_bytes for rate in rates
    ]
    assert chunks == [97_152, 294_272, 932_096, 3_355_264]
    few = [of(network_of([100] * 4), "all_reduce", size << 10).forest for size in (1024, 256)]
    assert [forest.chunk_bytes for forest in few] == [12_672, 7_040]
    assert all(chunk % SEGMENT == 0 for chunk in chunks)


def test_a_program_is_no_longer_for_a_slow_link() -> None:
    """A step takes 540 B of an engine's memory."""
    network, size = network_of([25, *[100] * 63]), 1 << 30
    task = Task(collective="all_reduce", size=size)
    assert of(network, "all_reduce", size).forest.chunk_bytes == (1 << 19) // SEGMENT * SEGMENT
    assert len(choose(task, placed(network, 5)).program.steps) < 6 * MOST_CHUNKS


# --- choice -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("network", "task", "name", "why"),
    [
        (uneven(4), Task(collective="all_reduce", size=SIZE), FOREST, "gain 1.50 over direct"),
        (
            network_of([100] * 4),
            Task(collective="all_reduce", size=SIZE),
            "direct",
            "gain 1.00: all hosts are equal",
        ),
        (
            network_of([98, 100, 100, 100]),
            Task(collective="all_reduce", size=SIZE),
            "direct",
            "too little",
        ),
        (uneven(4), Task(collective="all_reduce", size=64), "one_shot", "64 B"),
        # A forest has a network step more, which costs 0.2 ms here.
        (uneven(4), Task(collective="broadcast", size=100), "direct", "too little"),
        (uneven(4), Task(collective="all_to_all", sends=(8,) * 4, receives=(8,) * 4), "direct", ""),
    ],
)
def test_the_reason_is_given(network: JobNetwork, task: Task, name: str, why: str) -> None:
    choice = choose(task, placed(network))
    assert (choice.name, why in choice.why) == (name, True), choice.why


def test_equal_hosts_have_the_program_that_they_have_without_a_network() -> None:
    task = Task(collective="all_reduce", size=SIZE)
    known, unknown = placed(network_of([100] * 4)), Place(0, ((0,), (1,), (2,), (3,)), MOST)
    assert choose(task, known).program.steps == choose(task, unknown).program.steps
    assert choose(task, known).fingerprint == choose(task, unknown).fingerprint


def test_the_gain_of_a_plan_over_the_present_one() -> None:
    """By the closed form: with a host at a quarter, equal shares cross its link 1.5 times."""
    equal, slow = network_of([100] * 4), network_of([25, 100, 100, 100])
    assert gain_over(equal, slow) == Fraction(3, 2)
    assert gain_over(slow, slow) == gain_over(equal, equal) == 1
    assert 1 < gain_over(slow, equal) < Fraction(6, 5)  # the three others own all


def test_other_rates_are_another_fingerprint() -> None:
    task = Task(collective="all_reduce", size=SIZE)
    marks = {choose(task, placed(network)).fingerprint for network in (uneven(4), RACKS_2x2)}
    assert len(marks) == 2


def test_there_is_no_forest() -> None:
    """Without a network, with that of other hosts, for encoded parts, one host, too many ranks."""
    all_reduce, network = Task(collective="all_reduce", size=SIZE), uneven(4)
    several = Place(0, ((0, 1), (2,), (3,)), MOST, network)
    coded = Task(collective="reduce_scatter", sizes=(SIZE,) * 4, codec="int8", item=4)
    many = MOST_RANKS + 1
    for task, place in (
        (all_reduce, Place(0, ((0,), (1,)), MOST)),
        (all_reduce, several),
        (coded, placed(network)),
        (all_reduce, placed(network_of([100]))),
        (all_reduce, placed(uneven(many))),
        (Task(collective="all_reduce"), placed(network)),
        (Task(collective="gather", sizes=(8,) * 4), placed(network)),
    ):
        assert derived(task, place, "direct") is None
        if FOREST in CATALOG[task.collective]:
            with pytest.raises(UnknownSchedule, match="needs the network of two hosts"):
                choose(task, place, FOREST)


@pytest.mark.parametrize("size", [0, 1, 4 << 20])
@pytest.mark.parametrize("hosts", [1, 2, 32, 1024])
def test_the_least_and_the_largest_groups_and_tensors_have_a_program(hosts: int, size: int) -> None:
    """Each rank owns all bytes or none. Beyond MOST_RANKS it is that of a job without a network."""
    place = placed(uneven(hosts), hosts - 1)
    parts = (size,) + (0,) * (hosts - 1)
    for collective in WAYS:
        if collective in ("reduce_scatter", "all_gather"):
            task = Task(collective=collective, sizes=parts)
        else:
            task = Task(collective=collective, size=size)
        choice = choose(task, place)
        sent = sum(step.span.size for step in choice.program.steps if isinstance(step, Send))
        assert sent == 0 or (hosts > 1 and size), (collective, choice.why)
        assert hosts in (2, 32) or choice.name != FOREST


def test_two_hosts_have_nothing_to_gain() -> None:
    """Each byte crosses both links once each way, whatever the shares."""
    for size in (1, SIZE):
        task = Task(collective="all_reduce", size=size)
        programs = [choose(task, placed(network_of([25, 100]), rank)) for rank in range(2)]
        assert {each.name for each in programs} <= {"direct", "one_shot"}
        check([each.program for each in programs], [size] * 2, [size] * 2)


def test_a_codec_has_trees_of_one_hop() -> None:
    """Each value is rounded once on its way to the owner, and once on the way back."""
    task = Task(collective="all_reduce", size=SIZE, codec="int8", item=4)
    assert choose(task, placed(uneven(4))).name == FOREST
    assert choose(task, placed(uneven(4)), share=Share(1, 2)).name == FOREST
    found = derived(task, placed(RACKS_2x2), "direct")
    assert found is not None and all(tree.one_hop for tree in found.forest.trees)
    assert choose(task, placed(RACKS_2x2)).name == "direct", "equal hosts: nothing is gained"
    assert derived(task, placed(uneven(4), ranks=(1, 2, 1, 1)), "direct") is None
    assert found.forest.chunk_bytes == LEAST_CODED


def test_engines_do_not_divide_a_forest_by_transfers() -> None:
    size = 1 << 20
    task = Task(collective="reduce_scatter", sizes=(size,) * 8)
    assert choose(task, placed(RACKS_2x4)).name == FOREST
    assert choose(task, placed(RACKS_2x4), share=Share(0, 2)).name == "direct"
    with pytest.raises(UnknownSchedule, match="several engines"):
        choose(task, placed(RACKS_2x4), FOREST, Share(0, 2))


def test_a_part_of_a_network() -> None:
    part = RACKS_2x4.of(["h5", "h1", "h4"])
    assert [host.name for host in part.hosts] == ["h5", "h1", "h4"]
    assert part.groups == ((2,), (0, 1))
    assert RACKS_2x4.of(["h0", "h2"]).uniform


def test_the_effect_of_a_network_in_words() -> None:
    assert effect(uneven(4)).startswith("forest: gain 1.50 over direct")
    assert effect(network_of([100] * 4)).startswith("direct: gain 1.00: all hosts are equal")
    assert effect(uneven(MOST_RANKS + 1)).startswith(
        "none: 257 hosts; plans are for 2 to 256 ranks"
    )
