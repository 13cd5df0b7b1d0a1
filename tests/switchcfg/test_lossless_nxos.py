"""Lossless classes on NX-OS: the one network-qos policy, and flow control of ports."""

from typing import Final

import pytest

from switchcfg.errors import CannotExpress, Refused
from switchcfg.intent.intent import Device, Intent, parse
from switchcfg.plan.plan import Plan, plan, removal, reverse
from switchcfg.plan.state import Place, after
from switchcfg.platforms.nxos.platform import Nxos
from tests.switchcfg.test_captured import CLASSES, captured, device

NXOS: Final = Nxos()
BARE: Final = "hostname leaf\ninterface Ethernet1/1\ninterface Ethernet1/2\n"
ROCE: Final = (
    '[[lossless]]\nname = "roce"\npriority = 3\ndscp = [24, 25, 26]\nshare = 60\n'
    'cable = "100m"\ncnp = 48\n'
)
POLICIES: Final = '"ROCE-INGRESS", "ROCE-EGRESS", "ROCE-NETWORK-QOS"'
TAKES: Final = f"[keep]\nreplaces = [{POLICIES}]\n"
MODE: Final = "priority-flow-control mode"
SYSTEM: Final = Place("system network", "", "")


def wanted(
    lossless: str = ROCE, keep: str = "", port: str = "Ethernet1/1"
) -> tuple[Intent, Device]:
    found = parse(
        f'schema = 1\n[fabric]\nname = "lab"\n{CLASSES}{keep}{lossless}[[device]]\nname = "leaf"\n'
        f'platform = "nxos"\n[[device.ports]]\nnames = ["{port}"]\nrate = "100Gbit"\n',
        "intent.toml",
    )
    return found, found.device("leaf")


def planned(text: str, of: tuple[Intent, Device]) -> Plan:
    return plan(*of, NXOS, NXOS.read(text))


def refusal(text: str, of: tuple[Intent, Device]) -> str:
    with pytest.raises(Refused) as caught:
        planned(text, of)
    return str(caught.value)


def test_it_is_made_and_a_removal_takes_all_of_it_back() -> None:
    of, had = wanted(), device("nxos", BARE)
    before = NXOS.read(had.says())
    made = planned(had.says(), of)
    told = made.steps[0].payload
    assert "  class type network-qos c-8q-nq3\n    mtu 9216\n    pause pfc-cos 3\n" in told
    assert "system qos\n  service-policy type network-qos DLCP-NETWORK\n" in told
    # The policy is there before it is bound, and that before a port says pause.
    assert told.index("policy-map type network-qos") < told.index("system qos") < told.index(MODE)
    had.do(told)
    assert not planned(had.says(), of).changes
    gone = removal(*of, NXOS, NXOS.read(had.says()))
    told = gone.steps[0].payload
    assert told.index(f"no {MODE} on") < told.index("no service-policy type network-qos")
    assert told.index("no service-policy type network-qos") < told.index("no policy-map type netw")
    assert "no system qos" not in told
    had.do(told)
    assert NXOS.read(had.says()) == before


def test_without_it_flow_control_goes_from_all_ports_that_had_it_by_us() -> None:
    had = device("nxos", BARE + f"interface Ethernet1/3\n  {MODE} on\n")
    both = wanted(port="Ethernet1/[1-2]")
    had.do(planned(had.says(), both).steps[0].payload)
    assert had.says().count(f"{MODE} on") == 3
    had.do(planned(had.says(), wanted("")).steps[0].payload)
    assert f"interface Ethernet1/3\n   {MODE} on\n" in had.says()
    assert had.says().count(MODE) == 1
    assert "network-qos" not in had.says()


def test_a_plan_says_what_traffic_notices() -> None:
    made = planned(BARE, wanted())
    assert made.disrupts == (
        "flow control of the whole switch changes: all ports may lose packets",
        "all ports of the type of Ethernet1/1 lose packets for a moment",
    )
    assert planned(BARE, wanted("")).disrupts == made.disrupts[1:]


def test_queues_above_have_levels_and_others_their_percents() -> None:
    four = "".join(f'c{n} = {{ rank = {n}, dscp = [{n}], ecn = ["ect0"] }}\n' for n in range(5))
    text = f'schema = 1\n[fabric]\nname = "lab"\n[classes]\n{four}{ROCE}[[device]]\nname = "leaf"\n'
    text += 'platform = "nxos"\n[[device.ports]]\nnames = ["Ethernet1/1"]\nrate = "100Gbit"\n'
    found = parse(text, "x")
    out = NXOS.render(found, found.device("leaf"))
    levels = {p.name[-1]: v for p, v in out.state.items() if p.kind == "queue priority"}
    assert levels == {"7": "1", "6": "2", "5": "3", "4": "4"}
    shares = {p.name[-1]: v for p, v in out.state.items() if p.kind == "queue bandwidth"}
    assert shares == {"3": "60", "2": "40"}
    why = "NX-OS has no strict queue below a weighted queue"
    assert f"c4: not strict: weighted with the lossless classes, 40%: {why}" in out.degraded
    assert "roce: queue 3 is lossless on all ports with flow control" in out.degraded
    limits = {p.name[-1] for p in out.state if p.kind == "queue limit"}
    assert limits == {"7", "6", "5", "4", "2"}
    marks = out.state[Place("queue detect", "DLCP-OUT|c-out-8q-q3", "")]
    assert marks == "150000 1500000 100 0 ecn"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("priority = 3", "priority = 0", "priority 0 belongs to the default class"),
        (
            "100m",
            "101m",
            "a cable of 101m needs a configured pause buffer; switchcfg supports at most 100m",
        ),
    ],
)
def test_what_its_policies_cannot_say_is_refused(old: str, new: str, says: str) -> None:
    with pytest.raises(CannotExpress, match=f"leaf: lossless: roce: nxos: {says}"):
        NXOS.render(*wanted(ROCE.replace(old, new)))


# --- what others have ----------------------------------------------------------------------


def test_a_policy_of_the_switch_is_taken_over_only_where_the_intent_names_it() -> None:
    text = captured("nxos.roce")
    keep = TAKES.replace(', "ROCE-NETWORK-QOS"', "")
    said = refusal(text, wanted(keep=keep))
    assert "kept: leaf has the network-qos policy 'ROCE-NETWORK-QOS', and the plan would" in said
    of = wanted(keep=TAKES)
    present = NXOS.read(text)
    made = plan(*of, NXOS, present)
    then = after(present, made.changes)
    assert then[SYSTEM] == "DLCP-NETWORK"
    theirs = {p: v for p, v in present.items() if p.name.startswith("ROCE")}
    assert theirs
    assert {place: then.get(place) for place in theirs} == theirs
    assert not plan(*wanted(), NXOS, then).changes
    assert after(then, reverse(of[0], made, of[1], NXOS, then).changes) == present


def test_a_policy_that_the_intent_does_not_need_is_left_alone() -> None:
    keep = TAKES.replace("[keep]\n", "[keep]\nqueues = [3]\n")
    text = captured("nxos.roce").replace("random-detect", "! random-detect")
    points = "[keep.dscp]\n24 = 3\n25 = 3\n26 = 3\n"
    made = planned(text, wanted("", keep + points))
    assert not [change for change in made.changes if change.place.kind.startswith("system")]


def test_one_that_switches_from_the_factory_have_is_nobodys() -> None:
    default = BARE + "system qos\n  service-policy type network-qos default-8q-nq-policy\n"
    had = device("nxos", default)
    had.do(planned(had.says(), wanted()).steps[0].payload)  # it is taken off first
    assert NXOS.read(had.says())[SYSTEM] == "DLCP-NETWORK"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        # Another lossless class, another CoS, and one that says no CoS at all.
        (
            "    pause pfc-cos 3\n",
            "    pause pfc-cos 3\n  class type network-qos c-8q-nq5\n    pause pfc-cos 5\n",
            "with flow control of queue 5 by CoS 5, and the plan would end that",
        ),
        (
            "pfc-cos 3",
            "pfc-cos 4",
            "with flow control of queue 3 by CoS 4, and the plan would end that",
        ),
        ("match dscp 24-26", "match dscp 24-27", "lose code point 27 in lossless queue 3"),
        ("match dscp 24-26", "match cos 3", "lose CoS 3 in lossless queue 3"),
    ],
)
def test_what_ours_would_end_is_refused(old: str, new: str, says: str) -> None:
    text = captured("nxos.roce")
    assert old in text
    assert says in refusal(text.replace(old, new), wanted(keep=TAKES))


def test_buffers_of_others_are_no_other_flow_control() -> None:
    own = "pause buffer-size 90000 pause-threshold 30000 resume-threshold 20000 pfc-cos 3"
    text = captured("nxos.roce").replace("pause pfc-cos 3", own)
    read = NXOS.read(text)
    assert read[Place("class pause", "ROCE-NETWORK-QOS|c-8q-nq3", "")] == "3"
    assert planned(text, wanted(keep=TAKES)).changes
    no_drop = captured("nxos.roce").replace("pause pfc-cos 3", "pause no-drop")
    assert planned(no_drop, wanted(keep=TAKES)).changes


def test_a_port_that_somebody_turned_off_is_refused() -> None:
    off = BARE.replace("Ethernet1/1\n", f"Ethernet1/1\n  {MODE} off\n")
    said = refusal(off, wanted())
    assert f"lossless: Ethernet1/1 has `{MODE} off`: remove that line first" in said
    assert planned(off, wanted("")).changes
    assert planned(off, wanted(port="Ethernet1/2")).changes


def test_a_port_that_is_on_in_other_words_stays_so() -> None:
    on = BARE.replace("Ethernet1/1\n", f"Ethernet1/1\n  {MODE} on send-tlv\n")
    had = device("nxos", on)
    had.do(planned(had.says(), wanted()).steps[0].payload)
    assert f"   {MODE} on send-tlv\n" in had.says()
    assert f"{MODE} on\n" not in had.says()
    assert not planned(had.says(), wanted()).changes
    gone = removal(*wanted(), NXOS, NXOS.read(had.says()))
    assert not [change for change in gone.changes if change.place.kind == "interface pfc"]
    had.do(gone.steps[0].payload)
    assert f"   {MODE} on send-tlv\n" in had.says()


def test_flow_control_that_others_turned_on_at_a_port_of_ours_stays_on() -> None:
    """Without lossless classes of ours, whatever our policies are bound to there."""
    on = BARE.replace("Ethernet1/1\n", f"Ethernet1/1\n  {MODE} on\n")
    had, of = device("nxos", on), wanted("")
    had.do(planned(had.says(), of).steps[0].payload)
    assert not planned(had.says(), of).changes
    had.do(removal(*of, NXOS, NXOS.read(had.says())).steps[0].payload)
    assert f"   {MODE} on\n" in had.says()


def test_our_own_flow_control_is_in_nobodys_way() -> None:
    present = NXOS.read(BARE)
    then = after(present, plan(*wanted(), NXOS, present).changes)
    assert [*NXOS.flow_controlled(then, "Ethernet1/1")] == [3]
    assert plan(*wanted("", port="Ethernet1/2"), NXOS, then).changes
