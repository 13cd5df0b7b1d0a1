"""Networks are validated and rounded; closed forms reach their bounds."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcpd.schedules import shares
from dlcpd.schedules.builders import forest
from dlcpd.schedules.forest import ROOT, UNIT, Forest
from dlcpd.schedules.network import BadNetwork, Costs, Host, JobNetwork, Rack, rounded
from dlcpd.schedules.proof.check import check

COSTS = Costs(20_000, 1_000, 5_000, 100_000)


def network(*rates: int, racks: tuple[Rack, ...] = ()) -> JobNetwork:
    hosts = tuple(Host(f"h{at}", (rate,), (rate,)) for at, rate in enumerate(rates))
    return JobNetwork(hosts, racks, COSTS, 1)


def loads(made: Forest) -> list[Fraction]:
    """Bytes that each host sends in an all-reduce, per byte of the tensor: as many as it gets."""
    sent = [Fraction(0)] * made.world
    for tree in made.trees:
        for rank, children in enumerate(tree.children):
            links = len(children) + (tree.parents[rank] != ROOT)
            sent[rank] += Fraction(tree.share, UNIT) * links
    return sent


@pytest.mark.parametrize(
    ("rates", "bound"),
    [
        ((400,) * 4, Fraction(800, 3)),
        ((100, 400, 400, 400), 100),
        ((100, *[400] * 7), 100),
        ((5, 9), 5),
    ],
)
def test_unequal_shards_reach_the_bound(rates: tuple[int, ...], bound: Fraction) -> None:
    made = shares.one_switch(network(*rates), 64)
    assert made.bound_bps == bound
    rate = min(Fraction(c) / load for c, load in zip(rates, loads(made.forest), strict=True))
    assert rate >= bound * Fraction(99, 100)


@settings(max_examples=40)
@given(st.lists(st.integers(1, 10**11), min_size=1, max_size=12), st.integers(0, 9), st.data())
def test_closed_forms_give_proven_programs(
    rates: list[int], size: int, data: st.DataObject
) -> None:
    world, bps = len(rates), st.integers(1, 10**11)
    number = [data.draw(st.integers(0, 2)) for _ in rates]
    groups = [[f"h{r}" for r in range(world) if number[r] == k] for k in range(3)]
    racks = tuple(Rack(tuple(g), data.draw(bps), data.draw(bps)) for g in groups if g)
    made, again = network(*rates, racks=racks), network(*rates, racks=racks)
    assert made.digest == again.digest
    for plan, twin in zip(plans(made), plans(again), strict=True):
        assert plan == twin
        assert sum(tree.share for tree in plan.forest.trees) == UNIT
    root, size = data.draw(st.integers(0, world - 1)), size * 77
    for plan in plans(made)[:2]:
        programs = [forest.all_reduce(r, size, plan.forest) for r in range(world)]
        check(programs, [size] * world, [size] * world, input_at=[0] * world)
    down = shares.rooted(made, root, 64).forest
    check(
        [forest.broadcast(r, size, root, down) for r in range(world)],
        [size * (r == root) for r in range(world)],
        [size] * world,
    )
    assert sorted(shares.ring_order(made)) == list(range(world))


def plans(made: JobNetwork) -> list[shares.PlannedForest]:
    return [shares.one_switch(made, 64), shares.two_levels(made, 64), shares.rooted(made, 0, 64)]


def test_two_levels_cross_each_uplink_once_per_direction() -> None:
    racks = (Rack(("h0", "h2"), 50, 50), Rack(("h1", "h3"), 50, 50))
    made = shares.two_levels(network(100, 100, 100, 100, racks=racks), 64)
    assert made.bound_bps == 50
    for tree in made.forest.trees:
        crossing = [r for r, p in enumerate(tree.parents) if p != ROOT and (r - p) % 2]
        assert len(crossing) == 1


@pytest.mark.parametrize(
    ("racks", "order"),
    [
        ((), (0, 1, 2, 3)),
        (("02", "13"), (0, 2, 1, 3)),
        (("01", "23"), (0, 1, 2, 3)),
        (("03", "12"), (0, 1, 2, 3)),  # it enters each rack once already
        (("02", "1", "3"), (0, 2, 1, 3)),
    ],
)
def test_a_ring_enters_each_rack_once(racks: tuple[str, ...], order: tuple[int, ...]) -> None:
    made = tuple(Rack(tuple(f"h{host}" for host in rack), 50, 50) for rack in racks)
    assert shares.ring_order(network(1, 1, 1, 1, racks=made)) == order


@pytest.mark.parametrize(("value", "expected"), [(0, 0), (9, 9), (99, 99), (994, 990), (995, 1000)])
def test_two_digits_remain(value: int, expected: int) -> None:
    assert rounded(value) == expected


def test_the_digest_follows_every_value_but_no_third_digit() -> None:
    one = network(1000, 2000)
    assert one == network(1004, 2010)
    assert one.digest == network(1004, 2010).digest
    others = [network(1100, 2000), replace(one, version=2), replace(one, costs=Costs(1, 1, 1, 1))]
    assert len({one.digest, *(other.digest for other in others)}) == 4


HOST, GOOD = Host("a", (1,), (1,)), Rack(("a",), 1, 1)


@pytest.mark.parametrize(
    ("hosts", "racks", "costs", "version", "why"),
    [
        ((), (), COSTS, 0, "at least one host"),
        ((HOST, HOST), (), COSTS, 0, "host a is named twice"),
        ((HOST,), (), COSTS, -1, "version -1"),
        ((HOST,), (), COSTS._replace(wake_up_ns=-1), 0, "wake_up_ns is negative"),
        ((Host("a", (), ()),), (), COSTS, 0, "host a needs as many rails"),
        ((Host("a", (1, 1), (1,)),), (), COSTS, 0, "host a needs as many rails"),
        ((Host("a", (0,), (1,)),), (), COSTS, 0, "host a has a rail without"),
        ((Host("a", (1,), (-1,)),), (), COSTS, 0, "host a has a rail without"),
        ((HOST,), (Rack((), 1, 1),), COSTS, 0, "rack 0 has no host"),
        ((HOST,), (Rack(("a",), 0, 1),), COSTS, 0, "rack 0 has an uplink without"),
        ((HOST,), (Rack(("b",), 1, 1),), COSTS, 0, "unknown host b"),
        ((HOST,), (GOOD, GOOD), COSTS, 0, "host a is in two racks"),
        ((HOST, Host("b", (1,), (1,))), (GOOD,), COSTS, 0, "host b is in no rack"),
    ],
)
def test_a_bad_network_is_refused(
    hosts: tuple[Host, ...], racks: tuple[Rack, ...], costs: Costs, version: int, why: str
) -> None:
    with pytest.raises(BadNetwork, match=why):
        JobNetwork(hosts, racks, costs, version)


def test_a_broadcast_leaves_the_root_once_and_its_bound_is_of_the_right_direction() -> None:
    hosts = tuple(Host(f"h{at}", (out,), (90,)) for at, out in enumerate((60, 40, 40, 40)))
    made = shares.rooted(JobNetwork(hosts, (), COSTS, 0), 0, 64)
    assert made.bound_bps == 60
    assert sum(t.share * len(t.children[0]) for t in made.forest.trees) == UNIT
    assert shares.rooted(network(5), 0, 64).bound_bps == 0
    assert shares.one_switch(JobNetwork(hosts, (), COSTS, 0), 64).bound_bps == 30
