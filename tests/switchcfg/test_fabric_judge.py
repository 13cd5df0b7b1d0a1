"""Both ends of a link are compared by what they do, whatever platforms they are of."""

from collections.abc import Sequence
from itertools import combinations

import pytest

from switchcfg.errors import CannotExpress
from switchcfg.fabric.judge import FabricVerdict, Facts, judge
from switchcfg.fabric.wiring import Link, Wiring
from switchcfg.intent.intent import parse
from switchcfg.intent.links import End
from switchcfg.model.known import model_of
from switchcfg.platforms.known import PLATFORMS
from tests.switchcfg.golden import on_every_platform
from tests.switchcfg.intents import EXAMPLES, NAME
from tests.switchcfg.stock import sonic_roce, sonic_text

EOS = """\
hostname leaf
qos map dscp 24 to traffic-class 3
qos profile ROCE
   qos trust dscp
   priority-flow-control on
   priority-flow-control priority 3 no-drop
interface Ethernet1
   service-profile ROCE
interface Ethernet2
   service-profile ROCE
"""
DEVICE = """\
[[device]]
name = "{name}"
platform = "eos"
[[device.ports]]
names = ["Ethernet[1-2]"]
rate = "100Gbit"
"""
KEEP = "[keep]\nqueues = [3]\n[keep.dscp]\n24 = 3\n"
INTENT = parse(
    f'schema = 1\n[fabric]\nname = "lab"\n{KEEP}'
    + "".join(DEVICE.format(name=name) for name in ("leaf1", "leaf2", "spine1")),
    NAME,
)


def link(one: str, other: str) -> Link:
    ends = sorted((End(*one.split()), End(*other.split())))
    return Link(ends[0], ends[1], ("the intent",))


UP = link("leaf1 Ethernet1", "spine1 Ethernet1")
DOWN = link("leaf2 Ethernet1", "spine1 Ethernet2")


def eos(
    spine: str, links: Sequence[Link] = (UP,), mtus: tuple[int, int] = (9214, 9214)
) -> FabricVerdict:
    texts = {"leaf1": EOS, "leaf2": EOS, "spine1": spine}
    facts = {
        name: Facts(model_of("eos", text), {"Ethernet1": mtus[name == "spine1"]})
        for name, text in texts.items()
    }
    return judge(INTENT, Wiring(tuple(links)), facts)


def shown(found: FabricVerdict) -> list[tuple[str, ...]]:
    return [(each.subject, each.what, each.one, each.other) for each in found.findings]


def test_equal_ends_pass_and_are_lossless() -> None:
    found = eos(EOS, (UP, DOWN))
    assert found.passes and found.judged == 2
    assert [(each.whole, each.breaks) for each in found.lossless] == [(2, ())]
    assert found.lossless[0].dscp == tuple(range(24, 32))  # by default, as of EOS


@pytest.mark.parametrize(
    ("line", "to", "says"),
    [
        ("no-drop", "drop", ("PFC", "DSCP 24-31 pause by priority", "3", "nothing")),
        ("control on\n", "control priority 2 drop\n",
         ("PFC", "DSCP 24-31 pause by priority", "3", "nothing")),
        ("trust dscp", "trust cos", ("trust", "packets are classified by", "DSCP", "PCP")),
        ("dscp 24 to traffic-class 3", "dscp 24 to traffic-class 4",
         ("code points", "classes of DSCP 24-31, 34, 36, 38:", "24-31 | 34, 36, 38",
          "24, 34, 36, 38 | 25-31")),
        ("   qos trust dscp\n", "   qos trust dscp\n   service-policy type qos input X\n",
         ("trust", "packets are classified by", "DSCP", "the port")),
    ],
)  # fmt: skip
def test_a_difference_is_named_with_both_values(line: str, to: str, says: tuple[str, ...]) -> None:
    assert EOS.count(line) == 1
    assert says in shown(eos(EOS.replace(line, to)))


def test_classes_that_are_not_known_are_not_equal() -> None:
    unknown = EOS.replace("   qos trust dscp\n", "   service-policy type qos input X\n")
    both = judge(
        INTENT, Wiring((UP,)), {n: Facts(model_of("eos", unknown)) for n in ("leaf1", "spine1")}
    )
    assert [each[2:] for each in shown(both)] == [("not known", "not known")]


def test_mtu_is_compared_where_both_ends_tell_it() -> None:
    assert shown(eos(EOS, mtus=(9214, 1500))) == [("MTU", "bytes", "9214", "1500")]
    assert eos(EOS, mtus=(9214, 0)).passes


def test_a_lossless_path_is_named_where_it_breaks() -> None:
    half = EOS.replace("interface Ethernet2\n   service-profile ROCE\n", "interface Ethernet2\n")
    [found] = eos(half, (UP, DOWN)).lossless
    assert (found.whole, found.breaks) == (
        1,
        ("leaf2 Ethernet1 - spine1 Ethernet2: spine1 Ethernet2 without PFC",),
    )
    other = f"{EOS.replace('map dscp 24 to traffic-class 3', 'map dscp 24 to traffic-class 4')}"
    other = other.replace(
        "priority 3 no-drop", "priority 3 no-drop\n   priority-flow-control priority 4 no-drop"
    )
    breaks = [each for row in eos(other, (UP, DOWN)).lossless for each in row.breaks]
    assert (
        "leaf1 Ethernet1 - spine1 Ethernet1: leaf1 Ethernet1 by priority 3 and spine1 Ethernet1 by "
        "priority 4" in breaks
    )


def test_ports_of_one_device_that_pause_by_different_priorities_break_the_path() -> None:
    text = EOS.replace(
        "interface Ethernet2\n   service-profile ROCE\n",
        "interface Ethernet2\n   service-profile ROCE\n   qos trust cos\n   qos cos 4\n"
        "   priority-flow-control priority 4 no-drop\n",
    )
    breaks = [each for row in eos(text, (UP, DOWN)).lossless for each in row.breaks]
    assert "spine1: Ethernet1 by priority 3 and Ethernet2 by priority 4" in breaks


def test_links_that_cannot_be_judged_say_why() -> None:
    facts = {"leaf1": Facts(model_of("eos", EOS)), "spine1": Facts(model_of("eos", EOS))}
    links = (
        link("leaf1 Ethernet9", "spine1 Ethernet1"),
        Link(End("leaf1", "Ethernet1"), End("spine1", ""), ("LLDP on leaf1",)),
        DOWN,
    )
    found = judge(INTENT, Wiring(links), facts)
    assert found.judged == 0
    assert [each.partition(": ")[2] for each in found.unjudged] == [
        "the intent does not name leaf1 Ethernet9",
        "the port of spine1 is not known",
        "the configuration of leaf2 is not known",
    ]


def test_stock_sonic_pauses_by_its_priorities_and_equals_itself() -> None:
    model = model_of("sonic", sonic_text(sonic_roce(["Ethernet0"])))
    assert model.port("Ethernet0")[3].pauses == {"3"}
    assert model.port("Ethernet0")[4].pauses == {"4"}
    assert not model.port("Ethernet0")[0].pauses


# Parts of the examples that a platform cannot do, as docs/switches.md says: classes of their own
# for Not-ECT drop precedences, and kept queues on Linux.
KNOWN_TO_DIFFER = {"brownfield": {"linux"}, "no_ecn": {"eos", "junos", "linux"}}


@pytest.mark.parametrize("example", EXAMPLES)
def test_one_intent_is_equal_at_both_ends_between_any_two_platforms(example: str) -> None:
    intent, facts = on_every_platform(example), dict[str, Facts]()
    for device in intent.devices:
        kind = PLATFORMS[device.platform]
        try:
            text = kind.write(kind.render(intent, device).state)
        except CannotExpress:
            continue
        facts[device.name] = Facts(model_of(device.platform, text))
    ports = {name: intent.device(name).ports[0] for name in facts}
    links = [link(f"{a} {ports[a]}", f"{b} {ports[b]}") for a, b in combinations(facts, 2)]
    found = judge(intent, Wiring(tuple(links)), facts)
    assert found.judged == len(links) >= 10
    less = KNOWN_TO_DIFFER.get(example, set())
    for each in found.findings:
        kinds = {
            intent.device(end.device).platform in less for end in (each.link.one, each.link.other)
        }
        assert (each.subject, len(kinds)) == ("code points", 2), each
    assert all(not each.breaks for each in found.lossless)
    assert bool(found.lossless) == (example == "roce")
