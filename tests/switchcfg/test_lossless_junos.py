"""Lossless classes on Junos: forwarding classes, a congestion notification profile, its binding."""

from typing import Final

import pytest

from switchcfg.errors import CannotExpress, Refused
from switchcfg.intent.intent import Device, Intent, parse
from switchcfg.plan.plan import Plan, plan, removal, reverse
from switchcfg.plan.state import Place
from switchcfg.platforms.junos.platform import Junos
from tests.switchcfg.cli_device import JunosLines
from tests.switchcfg.intents import EXAMPLES
from tests.switchcfg.test_captured import CLASSES, captured

JUNOS: Final = Junos()
PORT: Final = "et-0/0/0"
COS: Final = "class-of-service"
LOSSLESS: Final = '[[lossless]]\nname = "roce"\npriority = 3\ndscp = [26, 28]\nshare = 60\n'
TAKES: Final = '[keep]\nreplaces = ["cnp", "sm1", "mydscp"]\n'
# Juniper's configuration, with the priority's number for the queue, and both code points paused.
ROCE: Final = (
    captured("junos_roce")
    .replace("class CNP queue-num 3", "class CNP queue-num 5")
    .replace("class NO-LOSS queue-num 4", "class NO-LOSS queue-num 3")
    .replace("flow-control-queue 4", "flow-control-queue 3")
    + f"set {COS} congestion-notification-profile cnp input dscp code-point 011100 pfc\n"
)


def wanted(lossless: str = LOSSLESS, keep: str = "") -> tuple[Intent, Device]:
    found = parse(
        f'schema = 1\n[fabric]\nname = "lab"\n{CLASSES}{keep}{lossless}[[device]]\nname = "leaf"\n'
        f'platform = "junos"\n[[device.ports]]\nnames = ["{PORT}"]\nrate = "100Gbit"\n',
        "intent.toml",
    )
    return found, found.device("leaf")


def planned(text: str, of: tuple[Intent, Device]) -> Plan:
    return plan(*of, JUNOS, JUNOS.read(text))


def refusal(text: str, of: tuple[Intent, Device]) -> str:
    with pytest.raises(Refused) as caught:
        planned(text, of)
    return str(caught.value)


def told(device: JunosLines, of: tuple[Intent, Device]) -> Plan:
    made = planned(device.says(), of)
    for step in made.steps:
        device.do(step.payload)
    return made


def test_it_is_made_and_a_removal_takes_all_of_it_back() -> None:
    device, of = JunosLines(), wanted(f'{LOSSLESS}cable = "70m"\n')
    made = told(device, of)
    stem = f"{COS} congestion-notification-profile DLCP"
    assert {line for line in device.have if "notification-profile" in line} == {
        f"{stem} input dscp code-point 011010 pfc",
        f"{stem} input dscp code-point 011100 pfc",
        f"{stem} input cable-length 70",
        f"{stem} output ieee-802.1 code-point 011 flow-control-queue 3",
        f"{COS} interfaces {PORT} congestion-notification-profile DLCP",
    }
    stem = f"{COS} forwarding-classes class DLCP-Q3"
    assert {line for line in device.have if line.startswith(stem)} == {
        f"{stem} queue-num 3",
        f"{stem} no-loss",
        f"{stem} pfc-priority 3",
    }
    assert made.disrupts == ("ports with PFC forward nothing while their PFC changes",)
    assert not planned(device.says(), of).changes
    # Printed in the other way that Junos has for classes.
    short = f"set {stem} queue-num 3 no-loss pfc-priority 3\n"
    rest = "".join(f"set {line}\n" for line in device.have if not line.startswith(stem))
    assert not planned(short + rest, of).changes
    for step in removal(*of, JUNOS, JUNOS.read(device.says())).steps:
        device.do(step.payload)
    assert device.have == set()


def test_without_it_no_flow_control_of_ours_is_left() -> None:
    device = JunosLines()
    told(device, wanted())
    made = told(device, wanted(""))
    for word in ("no-loss", "pfc", "notification-profile", "transmit-rate"):
        assert not [line for line in device.have if word in line]
    back = reverse(wanted()[0], made, wanted()[1], JUNOS, JUNOS.read(device.says()))
    for step in back.steps:
        device.do(step.payload)
    assert not planned(device.says(), wanted()).changes


def test_a_code_point_that_is_no_more_lossless_leaves_no_entry() -> None:
    device = JunosLines()
    told(device, wanted())
    told(device, wanted(LOSSLESS.replace("26, 28", "26")))
    assert [line for line in device.have if "input dscp" in line] == [
        f"{COS} congestion-notification-profile DLCP input dscp code-point 011010 pfc"
    ]
    moved = LOSSLESS.replace("priority = 3", "priority = 4")
    told(device, wanted(moved))
    stem = f"{COS} congestion-notification-profile DLCP output"
    assert [line for line in device.have if line.startswith(stem)] == [
        f"{stem} ieee-802.1 code-point 100 flow-control-queue 4"
    ]


def test_a_queue_of_a_class_of_ours_becomes_a_lossless_one() -> None:
    device = JunosLines()
    five = "".join(f'c{n} = {{ rank = {n}, dscp = [{n}], ecn = ["ect0"] }}\n' for n in range(5))
    text = f'schema = 1\n[fabric]\nname = "lab"\n[classes]\n{five}[[device]]\nname = "leaf"\n'
    text += f'platform = "junos"\n[[device.ports]]\nnames = ["{PORT}"]\nrate = "100Gbit"\n'
    found = parse(text, "x")
    told(device, (found, found.device("leaf")))
    stem = f"{COS} forwarding-classes class DLCP-Q3"
    assert f"{stem} queue-num 3" in device.have
    told(device, wanted())
    assert f"{stem} no-loss" in device.have


def test_the_levels_that_there_are_and_rates_where_they_end() -> None:
    found = parse(EXAMPLES["roce"], "x")
    out = JUNOS.render(found, found.device("leaf-junos"))
    levels = {p.name[-1]: v for p, v in out.state.items() if p.kind == "scheduler priority"}
    assert levels == {
        "7": "strict-high",
        "6": "high",
        "5": "medium-high",
        "4": "medium-low",
        "3": "low",
        "2": "low",
    }
    rates = {p.name[-1]: v for p, v in out.state.items() if p.kind == "scheduler rate"}
    assert rates == {"3": "50", "2": "50"}
    said = "bulk: not strict: weighted with the lossless classes, 50%: Junos has five levels"
    assert said in out.degraded
    assert "roce: PFC by code point works for traffic without VLAN tags only" in out.degraded
    without = JUNOS.render(*wanted(""))
    assert not [place for place in without.state if place.kind in ("scheduler rate", "pfc cable")]


def test_thresholds_are_percents_of_the_ports_buffer() -> None:
    text = EXAMPLES["roce"].replace("150KiB", "256KiB").replace("1500KiB", "512KiB")
    assert 'buffer = "1MiB"' in text
    found = parse(text, "x")
    out = JUNOS.render(found, found.device("leaf-junos"))
    assert out.state[Place("scheduler drop", "DLCP-Q3|low", "")] == "DLCP-25-50"
    assert Place("scheduler ecn", "DLCP-Q3", "") in out.state
    assert (
        "roce: ECN from 25% to 50% of its queue: Junos has no thresholds in bytes, so "
        "1048576 bytes are assumed as the size of the queue"
    ) in out.degraded
    none = JUNOS.render(*wanted(f"{LOSSLESS}ecn = false\n"))
    assert Place("scheduler ecn", "DLCP-Q3", "") not in none.state
    assert Place("scheduler drop", "DLCP-Q3|low", "") not in none.state
    assert not [text for text in none.degraded if text.startswith("roce: ECN")]


def test_the_longest_cable_counts_for_a_port() -> None:
    second = '[[lossless]]\nname = "other"\npriority = 4\ndscp = [32]\nshare = 20\ncable = "300m"\n'
    both = wanted(f'{LOSSLESS}cable = "40m"\n{second}')
    out = JUNOS.render(*both)
    assert out.state[Place("pfc cable", "DLCP", "")] == "300"
    assert "cable: a port has one length, 300m, for all its lossless classes" in out.degraded
    assert not [t for t in JUNOS.render(*wanted()).degraded if t.startswith("cable")]


@pytest.mark.parametrize(("queue", "name"), [(0, "best-effort"), (7, "network-control")])
def test_queues_of_classes_that_drop_are_refused(queue: int, name: str) -> None:
    with pytest.raises(
        CannotExpress, match=f"leaf: lossless: roce: junos: queue {queue} has .*{name}"
    ):
        JUNOS.render(*wanted(LOSSLESS.replace("priority = 3", f"priority = {queue}")))


# --- what others have ----------------------------------------------------------------------


def test_a_profile_of_others_is_taken_over_only_where_the_intent_names_it() -> None:
    said = refusal(ROCE, wanted(keep=TAKES.replace('"cnp", ', "")))
    assert f"kept: {PORT} has 'cnp', and the plan would replace it" in said
    device, of = JunosLines(), wanted(keep=TAKES)
    device.do(ROCE)
    before = set(device.have)
    made = told(device, of)
    lines = made.steps[0].payload.splitlines()
    bound = f"{COS} interfaces {PORT} congestion-notification-profile"
    assert lines.index(f"delete {bound} cnp") < lines.index(f"set {bound} DLCP")
    assert before - device.have == {
        f"{bound} cnp",
        f"{COS} interfaces {PORT} scheduler-map sm1",
        f"{COS} interfaces {PORT} unit 0 classifiers dscp mydscp",
    }
    assert not planned(device.says(), wanted()).changes
    back = reverse(of[0], made, of[1], JUNOS, JUNOS.read(device.says()))
    for step in back.steps:
        device.do(step.payload)
    assert device.have == before


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("", f"set {COS} congestion-notification-profile cnp input dscp code-point 100010 pfc\n",
         f"lossless: {PORT} has 'cnp', which pauses code point 100010, and the plan would end"),
        ("", f"set {COS} congestion-notification-profile cnp input ieee-802.1 code-point 011 pfc\n",
         f"lossless: {PORT} has 'cnp', which pauses frames of VLANs with priority 011, and"),
        ("flow-control-queue 3", "flow-control-queue 5",
         f"lossless: {PORT} has 'cnp', which pauses queue 5 by priority 011, and the plan would"),
        ("class CNP queue-num 5", "class CNP queue-num 3",
         "lossless: leaf has class 'CNP' on queue 3, which is lossy: the classes of a queue must"),
        ("pfc-priority 3", "pfc-priority 4",
         "lossless: leaf has class 'NO-LOSS' on queue 3 with PFC priority 4: a [[lossless]]"),
        ("code-points af32", "code-points 100011",
         f"lossless-dscp: {PORT}: code point 35 goes to queue 3 today, which has PFC; name it in"),
        ("", f"set {COS} forwarding-classes class MORE queue-num 6 no-loss\n",
         f"lossless: {PORT} queue 6 has PFC: name it in [keep] queues"),
    ],
)  # fmt: skip
def test_what_ours_would_end_is_refused(old: str, new: str, says: str) -> None:
    assert old in ROCE
    text = ROCE.replace(old, new) if old else ROCE + new
    assert says in refusal(text, wanted(keep=TAKES))


def test_profiles_that_a_port_has_not_are_not_asked_about() -> None:
    stem = f"set {COS} congestion-notification-profile else"
    other = f"{stem} input dscp code-point 100010 pfc\n{stem} input ieee-802.1 code-point 101 pfc\n"
    other += f"{stem} output ieee-802.1 code-point 101 flow-control-queue 5\n"
    assert planned(ROCE + other, wanted(keep=TAKES)).changes
    assert planned(other, wanted()).changes


def test_flow_control_of_others_is_not_left_without_what_serves_it() -> None:
    """Ours is taken off with its own; beside a profile of others ours stays needed."""
    device = JunosLines()
    device.do(f"set {COS} forwarding-classes class THEIRS queue-num 4 no-loss\n")
    of = wanted(keep="[keep]\nqueues = [4]\n")
    told(device, of)
    present = JUNOS.read(device.says())
    assert removal(*of, JUNOS, present).changes
    theirs = {**present, Place("interface pfc", PORT, ""): "cnp"}
    with pytest.raises(Refused, match="has PFC, and the plan would remove 'DLCP', which serves"):
        removal(*of, JUNOS, theirs)


def test_our_own_flow_control_is_in_nobodys_way() -> None:
    device = JunosLines()
    told(device, wanted())
    assert planned(device.says(), wanted("")).changes
