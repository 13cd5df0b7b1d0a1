"""Lossless classes on EOS: ours, and what others have there already."""

from typing import Final

import pytest

from switchcfg.errors import Refused
from switchcfg.intent.intent import Device, Intent, parse
from switchcfg.plan.plan import Plan, plan, removal, reverse
from switchcfg.plan.state import Place, after
from switchcfg.platforms.eos import Eos
from tests.switchcfg import printed
from tests.switchcfg.intents import EXAMPLES
from tests.switchcfg.test_captured import CLASSES, captured, device

EOS: Final = Eos()
BARE: Final = "hostname leaf\ninterface Ethernet1\ninterface Ethernet2\ninterface Ethernet3\n"
LOSSLESS: Final = '[[lossless]]\nname = "roce"\npriority = 3\ndscp = DSCP\nshare = 60\n'
# All that goes to traffic class 3 there: by name, and by default.
THERE: Final = "[24, 25, 26, 27, 28, 29, 30, 31, 34, 46]"
ROCE: Final = LOSSLESS.replace("DSCP", THERE)
TAKES: Final = '[keep]\nreplaces = ["ROCE-LEAF"]\n'


def wanted(lossless: str = ROCE, keep: str = "", port: str = "Ethernet1") -> tuple[Intent, Device]:
    found = parse(
        f'schema = 1\n[fabric]\nname = "lab"\n{CLASSES}{keep}{lossless}[[device]]\nname = "leaf"\n'
        f'platform = "eos"\n[[device.ports]]\nnames = ["{port}"]\nrate = "100Gbit"\n',
        "intent.toml",
    )
    return found, found.device("leaf")


def planned(text: str, of: tuple[Intent, Device]) -> Plan:
    return plan(*of, EOS, EOS.read(text))


def refusal(text: str, of: tuple[Intent, Device]) -> str:
    with pytest.raises(Refused) as caught:
        planned(text, of)
    return str(caught.value)


def test_it_is_made_read_back_as_it_is_printed_and_taken_back() -> None:
    of = wanted()
    had = device("eos", BARE)
    before = had.says()
    for step in planned(BARE, of).steps:
        had.do(step.payload)
    text = printed.eos(had.says())
    assert "   priority-flow-control on\n   priority-flow-control priority 3 no-drop\n" in text
    assert "qos map dscp 24 25 26 27 28 29 30 31 34 46 to traffic-class 3\n" not in text
    assert not planned(text, of).changes
    for step in removal(*of, EOS, EOS.read(text)).steps:
        had.do(step.payload)
    assert printed.eos(had.says()) == before


def test_without_it_the_queue_is_strict_and_flow_control_is_off_again() -> None:
    had = device("eos", BARE)
    for step in planned(BARE, wanted()).steps:
        had.do(step.payload)
    five = "".join(f'c{n} = {{ rank = {n}, dscp = [{n}], ecn = ["ect0"] }}\n' for n in range(5))
    text = f'schema = 1\n[fabric]\nname = "lab"\n[classes]\n{five}[[device]]\nname = "leaf"\n'
    text += 'platform = "eos"\n[[device.ports]]\nnames = ["Ethernet1"]\nrate = "100Gbit"\n'
    found = parse(text, "x")
    made = planned(had.says(), (found, found.device("leaf")))
    for step in made.steps:
        had.do(step.payload)
    for line in ("priority-flow-control", "no priority", "bandwidth"):
        assert line not in had.says()
    assert "   uc-tx-queue 3\n" in had.says()
    back = reverse(found, made, found.device("leaf"), EOS, EOS.read(had.says()))
    for step in back.steps:
        had.do(step.payload)
    assert not planned(had.says(), wanted()).changes


def test_queues_above_are_strict_and_those_below_are_in_turn_which_is_said() -> None:
    storage = '[[lossless]]\nname = "storage"\npriority = 4\ndscp = [32]\nshare = 40\n'
    text = EXAMPLES["roce"].replace("share = 50", "share = 60") + storage
    found = parse(text, "x")
    out = EOS.render(found, found.device("leaf-eos"))
    share = {p.name: v for p, v in out.state.items() if p.kind == "queue share"}
    assert share == {"DLCP|3": "48", "DLCP|4": "32", "DLCP|2": "10", "DLCP|1": "10"}
    turns = {p.name for p in out.state if p.kind == "queue round robin"}
    assert turns == share.keys()
    assert "roce: cable: EOS computes the headroom itself" in out.degraded
    why = "EOS serves no strict queue below a weighted queue"
    assert f"bulk: not strict: weighted with the lossless classes, 10%: {why}" in out.degraded
    low = ROCE.replace("priority = 3", "priority = 0")
    out = EOS.render(*wanted(low))
    assert not [text for text in out.degraded if "not strict" in text or "cable" in text]


def test_ecn_is_as_the_intent_says() -> None:
    state = EOS.render(*wanted()).state
    assert state[Place("queue ecn", "DLCP|3", "")] == "150 1500 100 0"
    without = EOS.render(*wanted(f"{ROCE}ecn = false\n")).state
    assert Place("queue ecn", "DLCP|3", "") not in without


def test_a_third_one_is_refused() -> None:
    rows = "".join(
        LOSSLESS.replace("DSCP", f"[{n}]")
        .replace("3", str(n), 1)
        .replace("roce", f"r{n}")
        .replace("60", "30")
        for n in (3, 4, 5)
    )
    with pytest.raises(Exception, match=r"lossless: eos has at most 2 \[\[lossless\]\] classes"):
        EOS.render(*wanted(rows))


# --- what others have ----------------------------------------------------------------------


def test_a_profile_of_others_is_taken_over_only_where_the_intent_names_it() -> None:
    text = captured("eos.roce")
    assert "kept: Ethernet1 has 'ROCE-LEAF', and the plan would replace it" in refusal(
        text, wanted()
    )
    of = wanted(keep=TAKES)
    present = EOS.read(text)
    made = plan(*of, EOS, present)
    then = after(present, made.changes)
    assert then[Place("interface profile", "Ethernet1", "")] == "DLCP"
    assert Place("profile pfc", "DLCP|3", "") in then
    theirs = {p: v for p, v in present.items() if p.name.startswith("ROCE-LEAF")}
    assert theirs
    assert {place: then.get(place) for place in theirs} == theirs
    # Then it is ours, whether it is still named or not, and a rollback gives theirs back.
    assert not plan(*wanted(), EOS, then).changes
    assert after(then, reverse(of[0], made, of[1], EOS, then).changes) == present


def test_a_profile_with_flow_control_on_another_priority_is_not_taken_over() -> None:
    text = captured("eos.roce").replace(
        "   priority-flow-control priority 3 no-drop\n   !",
        "   priority-flow-control priority 3 no-drop\n   priority-flow-control priority 4 no-drop\n"
        "   !",
    )
    said = refusal(text, wanted(keep=TAKES))
    assert (
        "kept: Ethernet1 has 'ROCE-LEAF', and the plan would replace it and lose flow control"
        in said
    )
    assert "lossless: Ethernet1 queue 4 has PFC: name it in [keep] queues" in said


def test_flow_control_of_the_port_itself_stays_beside_ours() -> None:
    of = wanted(port="Ethernet2")
    had = device("eos", captured("eos.roce"))
    own = "   priority-flow-control priority 3 no-drop\n"
    before = had.says()
    for step in planned(before, of).steps:
        had.do(step.payload)
    head = "interface Ethernet2\n   mtu 9214\n   priority-flow-control on\n"
    assert f"{head}{own}   service-profile DLCP\n" in had.says()
    for step in removal(*of, EOS, EOS.read(had.says())).steps:
        had.do(step.payload)
    assert f"{head}{own}" in had.says()
    assert "DLCP" not in had.says()


@pytest.mark.parametrize("port", ["Ethernet2", "Ethernet3"])
def test_code_points_that_flow_control_protects_on_any_port_are_not_left_out(port: str) -> None:
    """The map is the switch's: Ethernet3 has none, but its neighbours do."""
    said = refusal(captured("eos.roce"), wanted(ROCE.replace("34, 46", "34"), port=port))
    assert said.count("code point 46 goes to queue 3 today, which has PFC; name it in dscp of") == 1
    assert "code point 34 " not in said


def test_our_own_flow_control_is_in_nobodys_way() -> None:
    """Also not on ports of ours that an intent without it does not name."""
    present = EOS.read(BARE)
    then = after(present, plan(*wanted(), EOS, present).changes)
    assert [*EOS.flow_controlled(then, "Ethernet1")] == [3]
    assert plan(*wanted("", port="Ethernet2"), EOS, then).changes
