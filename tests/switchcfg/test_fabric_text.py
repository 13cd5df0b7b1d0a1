"""A fabric as text: many lines are few, and ports stay with the port at their other end."""

from switchcfg.fabric.judge import FabricVerdict, Finding
from switchcfg.fabric.order import topology, waves
from switchcfg.fabric.text import FEW, links, order, problems
from switchcfg.fabric.wiring import Link, Wiring
from switchcfg.intent.links import End
from switchcfg.intent.port_ranges import folded
from tests.switchcfg.test_order import clos, fabric


def between(*ports: tuple[str, str]) -> list[Link]:
    return [Link(End("leaf1", a), End("spine1", b), ("the intent",)) for a, b in ports]


def test_ports_of_a_line_are_in_one_order_at_both_ends() -> None:
    straight = between(*((f"Ethernet{n}", f"et-0/0/{n}") for n in range(1, 11)))
    assert [*links(Wiring(tuple(straight)))] == [
        "leaf1 Ethernet[1-10] - spine1 et-0/0/[1-10] (the intent)"
    ]
    crossed = between(("Ethernet1", "swp2"), ("Ethernet2", "swp1"), ("Ethernet3", ""))
    assert [*links(Wiring(tuple(crossed)))] == [
        "leaf1 Ethernet[1-3] - spine1 swp2, swp1, (port unknown) (the intent)"
    ]


def test_equal_differences_of_many_links_are_one_line_and_others_are_counted() -> None:
    them = between(*((f"Ethernet{n}", f"swp{n}") for n in range(1, 33)))
    equal = [Finding(link, "MTU", "bytes", "9214", "1500") for link in them]
    assert [*problems(FabricVerdict(tuple(equal)))] == [
        "differs: leaf1 Ethernet[1-32] - spine1 swp[1-32]: MTU: bytes 9214 on leaf1, 1500 on spine1"
    ]
    apart = [Finding(link, "MTU", "bytes", "9214", str(n)) for n, link in enumerate(them)]
    lines = [*problems(FabricVerdict(tuple(apart)))]
    assert len(lines) == FEW + 1 and lines[-1] == f"differs: ... and {32 - FEW} more"


def test_pairs_without_another_path_are_named_and_bounded() -> None:
    few, wide = ((fabric(*clos(n, 1), [])) for n in (2, 40))
    for (intent, wiring), count in ((few, 1), (wide, FEW + 1)):
        known = topology(intent, wiring)
        lines = [*order(waves(intent.devices, known), known)][1:]
        assert len(lines) == count
        assert lines[0] == "no other path: leaf0 and leaf1, while spine0 is changed"
    assert lines[-1] == "no other path: more pairs, while spine0 is changed"


def test_effects_that_differ_in_the_port_alone_are_one() -> None:
    down = [f"Ethernet{4 * n} goes down and up" for n in range(88)]
    assert folded([*down, "p1: packets in its queue are lost", "all services restart"], most=1) == [
        "Ethernet[0-348/4] goes down and up",
        "p1: packets in its queue are lost",
        "all services restart",
    ]
