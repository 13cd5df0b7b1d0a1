"""The order of changes: no ECMP group loses all its paths, on random fabrics."""

from dataclasses import replace
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from switchcfg.fabric.order import lost, topology, waves
from switchcfg.fabric.wiring import Link, Wiring
from switchcfg.intent.intent import Device, Intent, parse
from switchcfg.intent.links import End
from tests.switchcfg.intents import NAME
from tests.switchcfg.test_linux import TEXT

INTENT = parse(TEXT, NAME)
[ONE] = INTENT.devices  # with ports p1 and p2
Edge = tuple[str, str]


def fabric(names: list[str], edges: list[Edge], hosts: list[Edge]) -> tuple[Intent, Wiring]:
    """Leaves keep their ports p1 and p2 for hosts; other devices have ports to devices only."""
    count = dict.fromkeys(names, 0)
    links = []
    for edge in edges:
        ends = []
        for name in edge:
            count[name] += 1
            ends.append(End(name, f"u{count[name]}"))
        one, other = sorted(ends)
        links.append(Link(one, other, ("the intent",)))
    [group] = ONE.groups
    devices = []
    for name in names:
        up = tuple(f"u{n}" for n in range(1, count[name] + 1))
        own = (*up, "p1", "p2") if name.startswith("leaf") else up
        devices.append(replace(ONE, name=name, groups=(replace(group, ports=own),)))
    outside = tuple((End(name, "p1"), f"{host} eth0") for name, host in hosts)
    return replace(INTENT, devices=tuple(devices)), Wiring(tuple(links), outside)


def order(intent: Intent, wiring: Wiring) -> list[list[str]]:
    return [[d.name for d in g] for g in waves(intent.devices, topology(intent, wiring))]


def clos(leaves: int, spines: int) -> tuple[list[str], list[Edge]]:
    low, high = (
        [f"{kind}{n}" for n in range(many)] for kind, many in (("leaf", leaves), ("spine", spines))
    )
    return [*low, *high], [(one, other) for one in low for other in high]


def test_the_canary_then_leaves_then_spines_one_by_one() -> None:
    names, edges = clos(4, 3)
    assert order(*fabric(names, edges, [])) == [
        ["leaf0"],
        ["leaf1", "leaf2", "leaf3"],
        ["spine0"],
        ["spine1"],
        ["spine2"],
    ]


def test_leaves_with_a_common_host_or_a_peer_link_go_one_after_the_other() -> None:
    names, edges = clos(5, 2)
    hosts = [("leaf1", "h1"), ("leaf2", "h1")]
    assert order(*fabric(names, [*edges, ("leaf3", "leaf4")], hosts))[1:3] == [
        ["leaf1", "leaf3"],
        ["leaf2", "leaf4"],
    ]


def test_two_sides_and_devices_without_links_are_never_together() -> None:
    names, edges = clos(3, 2)
    intent, wiring = fabric([*names, "other1", "other2"], edges, [])
    sided = [replace(d, side="AB"[i % 2]) if i < 3 else d for i, d in enumerate(intent.devices)]
    found = waves(sided, topology(replace(intent, devices=tuple(sided)), wiring))
    assert all(len(group) == 1 for group in found)
    assert [group[0].name for group in found][:1] == ["leaf0"]


def test_spines_of_two_pods_go_together_only_where_planes_leave_a_path() -> None:
    """Two pods, two planes: spine a0 and b1 together would leave no plane to both pods."""
    names = ["leaf0", "leaf1", "a0", "a1", "b0", "b1", "top0", "top1"]
    edges = [("leaf0", "a0"), ("leaf0", "a1"), ("leaf1", "b0"), ("leaf1", "b1")]
    edges += [("a0", "top0"), ("b0", "top0"), ("a1", "top1"), ("b1", "top1")]
    groups = order(*fabric(names, edges, []))
    assert ["a0", "b0"] in groups and ["a1", "b1"] in groups
    assert not any({"a0", "b1"} <= set(group) for group in groups)
    assert not any({"top0", "top1"} <= set(group) for group in groups)


def test_a_device_that_is_the_only_path_is_alone_and_named() -> None:
    names, edges = clos(3, 1)
    intent, wiring = fabric(names, edges, [])
    known = topology(intent, wiring)
    assert order(intent, wiring)[-1] == ["spine0"]
    assert sorted(lost(known, {"spine0"})) == [
        ("leaf0", "leaf1"),
        ("leaf0", "leaf2"),
        ("leaf1", "leaf2"),
    ]
    assert not [*lost(known, {"leaf0"})]


@st.composite
def fabrics(draw: st.DrawFn) -> tuple[list[str], list[Edge], list[Edge], list[str]]:
    """Leaves and spines with some links missing, peer links, hosts of several leaves, and sides."""
    names, edges = clos(draw(st.integers(2, 7)), draw(st.integers(1, 4)))
    gone = draw(st.sets(st.integers(0, len(edges) - 1), max_size=len(edges) // 3))
    edges = [each for number, each in enumerate(edges) if number not in gone]
    leaves = [name for name in names if name.startswith("leaf")]
    pairs = st.sampled_from([*combinations(leaves, 2)])
    edges += draw(st.lists(pairs, max_size=2, unique=True))
    shared = draw(st.lists(pairs, max_size=3))
    hosts = [(leaf, f"h{n}") for n, pair in enumerate(shared) for leaf in pair]
    sides = draw(
        st.lists(st.sampled_from(["", "A", "B"]), min_size=len(names), max_size=len(names))
    )
    return draw(st.permutations(names)), edges, hosts, sides


def has_path(edges: list[Edge], down: set[str], one: str, other: str) -> bool:
    """By a spine that both have, in code of its own."""
    near = {
        name: {b for edge in edges for a, b in (edge, edge[::-1]) if a == name}
        for name in (one, other)
    }
    return any(each.startswith("spine") and each not in down for each in near[one] & near[other])


@given(fabrics())
def test_each_device_is_changed_once_and_every_pair_keeps_a_path(
    drawn: tuple[list[str], list[Edge], list[Edge], list[str]],
) -> None:
    names, edges, hosts, sides = drawn
    intent, wiring = fabric(names, edges, hosts)
    devices = [replace(d, side=s) for d, s in zip(intent.devices, sides, strict=True)]
    intent = replace(intent, devices=tuple(devices))
    groups = [[d.name for d in g] for g in waves(devices, topology(intent, wiring))]
    assert sorted(name for group in groups for name in group) == sorted(names)
    assert groups[0] == [names[0]]
    side = dict(zip(names, sides, strict=True))
    leaves = [name for name in names if name.startswith("leaf")]
    for group in groups:
        down = set(group)
        assert len({side[name] for name in group} - {""}) <= 1
        assert not any(set(edge) <= down for edge in edges)
        for host in {host for _, host in hosts}:
            homes = {leaf for leaf, of in hosts if of == host}
            assert len(homes & down) <= 1
        linked = {name for edge in edges for name in edge}
        assert not any(
            {a, b} <= down
            and any({a, b} <= {x for e in edges if leaf in e for x in e} for leaf in leaves)
            for a, b in combinations([n for n in names if n.startswith("spine")], 2)
        )
        for one, other in combinations([n for n in leaves if n not in down and n in linked], 2):
            if len(group) > 1 and has_path(edges, set(), one, other):
                assert has_path(edges, down, one, other)


def test_a_thousand_leaves_are_ordered_in_few_looks() -> None:
    """The number of groups, and that it ends: nothing is looked at pair by pair."""
    names, edges = clos(600, 4)
    assert [len(group) for group in order(*fabric(names, edges, []))] == [
        1,
        256,
        256,
        87,
        1,
        1,
        1,
        1,
    ]


def test_devices_of_an_intent_without_links_go_as_sides_say() -> None:
    def named(name: str, side: str) -> Device:
        return replace(ONE, name=name, side=side)

    devices = [named("a", ""), named("b", ""), named("c", "A"), named("d", "A")]
    assert [[d.name for d in g] for g in waves(devices)] == [["a"], ["b"], ["c", "d"]]
