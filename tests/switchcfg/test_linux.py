"""What is particular to Linux: no names on queues, rules as text, a root that may be somebody's."""

import pytest

from switchcfg.errors import BadState, Refused
from switchcfg.intent.intent import parse
from switchcfg.plan.plan import plan, removal
from switchcfg.plan.state import Change, Place
from switchcfg.platforms.linux.platform import Linux, shaped
from switchcfg.platforms.linux.text import bits
from tests.switchcfg.intents import NAME
from tests.switchcfg.linux_device import LinuxDevice, rate

TEXT = """\
schema = 1
[fabric]
name = "lab"
[[device]]
name = "sw"
platform = "linux"
[[device.ports]]
names = ["p1", "p2"]
rate = "20Mbit"
"""
INTENT = parse(TEXT, NAME)
[SWITCH] = INTENT.devices
LINUX = Linux()


def brought() -> LinuxDevice:
    """A switch that is as the intent wants it."""
    device = LinuxDevice(("p1", "p2"))
    for step in plan(INTENT, SWITCH, LINUX, LINUX.read(device.says())).steps:
        device.do(step.payload)
    return device


def test_queues_are_there_before_rules_point_at_them_and_go_after_them() -> None:
    device = LinuxDevice(("p1", "p2"))
    made = plan(INTENT, SWITCH, LINUX, LINUX.read(device.says()))
    assert [step.title for step in made.steps] == ["make queues", "set rules"]
    assert made.disrupts == tuple(f"{port}: packets in its queue are lost" for port in ("p1", "p2"))
    gone = removal(INTENT, SWITCH, LINUX, LINUX.read(brought().says()))
    assert [step.title for step in gone.steps] == ["set rules", "remove queues"]


def test_a_limit_changes_where_it_stands_and_nothing_is_lost() -> None:
    device = brought()
    larger = parse(f'{TEXT}buffer = "1MiB"\n', NAME)
    made = plan(larger, larger.devices[0], LINUX, LINUX.read(device.says()))
    assert not made.disrupts
    assert "root" not in made.steps[0].payload
    for step in made.steps:
        device.do(step.payload)
    assert not plan(larger, larger.devices[0], LINUX, LINUX.read(device.says())).changes


def test_another_class_for_the_rest_makes_the_port_anew() -> None:
    device = brought()
    other = parse(TEXT.replace("[[device]]", '[queues]\nrest = "back"\n[[device]]', 1), NAME)
    made = plan(other, other.devices[0], LINUX, LINUX.read(device.says()))
    assert made.disrupts
    for step in made.steps:
        device.do(step.payload)
    assert not plan(other, other.devices[0], LINUX, LINUX.read(device.says())).changes


def test_fewer_classes_take_their_queues_away_after_the_rules() -> None:
    device = brought()
    one = 'one = { rank = 0, dscp = [10], ecn = ["ect0"] }\n'
    few = parse(TEXT.replace("[[device]]", f"[classes]\n{one}[[device]]", 1), NAME)
    made = plan(few, few.devices[0], LINUX, LINUX.read(device.says()))
    for step in made.steps:
        device.do(step.payload)
    assert {minor for _, minor in device.classes} == {"1", "17"}
    assert not plan(few, few.devices[0], LINUX, LINUX.read(device.says())).changes


def test_a_rule_that_was_changed_by_hand_is_put_back() -> None:
    device = brought()
    lines = device.tables["DLCP"]
    [at] = [n for n, line in enumerate(lines) if "ip dscp 48 " in line][:1]
    lines[at] = lines[at].replace("48", "46")
    made = plan(INTENT, SWITCH, LINUX, LINUX.read(device.says()))
    [change] = made.changes
    assert "ip dscp 46" in str(change.before)
    assert "ip dscp 48" in str(change.after)


def test_a_root_queue_of_somebody_else_is_refused_by_name() -> None:
    device = LinuxDevice(("p1", "p2"))
    text = device.says().replace(
        '"noqueue", "handle": "0:", "dev": "p2"', '"fq_codel", "handle": "8001:", "dev": "p2"'
    )
    with pytest.raises(
        Refused,
        match=r"root queue: p2 has the foreign root qdisc fq_codel; .*tc qdisc del dev p2 root",
    ):
        plan(INTENT, SWITCH, LINUX, LINUX.read(text))


def test_a_port_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(Refused, match="port: the device has no port p2"):
        plan(INTENT, SWITCH, LINUX, LINUX.read(LinuxDevice(("p1",)).says()))


def test_tables_and_queues_of_others_are_left_alone() -> None:
    text = brought().says().replace("table netdev DLCP ", "table netdev THEIRS ")
    gone = removal(INTENT, SWITCH, LINUX, LINUX.read(text))
    assert not any("THEIRS" in step.payload for step in gone.steps)


@pytest.mark.parametrize(
    "asked", [10**6, 12_345_678, 10**9, 2_500_000_000, 10**10, 10**11, 4 * 10**11, 1_600 * 10**9]
)
def test_a_rate_reads_back_as_it_was_set(asked: int) -> None:
    held = shaped(asked)
    assert 0.97 * asked < held <= 0.98 * asked
    assert bits(rate(f"{held}bit")) == held


@pytest.mark.parametrize("text", ["@@ qdiscs\n{}", "@@ qdiscs\n[3]", "@@ qdiscs\n["])
def test_nonsense_of_tc_is_one_error(text: str) -> None:
    with pytest.raises(BadState, match="tc -j qdisc show"):
        LINUX.read(text)


def test_a_setting_is_never_taken_away_but_put_back() -> None:
    place = Place("sysctl", "net.ipv4.fib_multipath_hash_policy", "")
    assert not LINUX.owns(INTENT)(place, "1")
    [step] = LINUX.steps({place: "1"}, [Change(place, "1", "0")])
    assert step.payload == "sysctl -qw net.ipv4.fib_multipath_hash_policy=0\n"


def test_the_snapshot_asks_for_the_ports_and_all_that_is_ours() -> None:
    script = LINUX.shell(INTENT, SWITCH).snapshot
    assert "case ' p1 p2 ' in" in script
    assert "list table netdev DLCP" in script
