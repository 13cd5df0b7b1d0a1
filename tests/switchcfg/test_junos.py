"""What Junos devices print, and ours beside RoCE on them."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from switchcfg.errors import BadIntent, BadState, Refused
from switchcfg.intent.intent import Device, Intent, parse
from switchcfg.plan.plan import Plan, plan, removal, reverse
from switchcfg.plan.state import Place, State, after
from switchcfg.platforms.junos.platform import Junos
from tests.switchcfg.cli_device import JunosLines
from tests.switchcfg.stock import sonic_roce, sonic_text

JUNOS = Junos()
ROCE: Final = (Path(__file__).parent / "captured" / "junos_roce.txt").read_text("utf-8")
PORT: Final = "et-0/0/0"
CLASSES: Final = """\
[classes]
front = { rank = 0, dscp = [34, 38], ecn = ["ect0", "not-ect"] }
back = { rank = 1, dscp = [10, 14], ecn = ["ect0", "not-ect"] }
"""
KEEP: Final = '[keep]\nqueues = [3, 4]\nreplaces = ["mydscp", "sm1"]\n'


def intent(
    keep: str = "", more: str = "", classes: str = CLASSES, queues: str = ""
) -> tuple[Intent, Device]:
    found = parse(
        f'schema = 1\n[fabric]\nname = "lab"\n{keep}{queues}{classes}[[device]]\nname = "leaf"\n'
        f'platform = "junos"\n{more}[[device.ports]]\nnames = ["{PORT}"]\nrate = "100Gbit"\n',
        "intent.toml",
    )
    return found, found.device("leaf")


def planned(text: str, wanted: tuple[Intent, Device]) -> tuple[State, Plan]:
    present = JUNOS.read(text)
    return present, plan(*wanted, JUNOS, present)


def refusal(text: str, wanted: tuple[Intent, Device]) -> str:
    with pytest.raises(Refused) as caught:
        planned(text, wanted)
    return str(caught.value)


# --- reading -------------------------------------------------------------------------


def test_other_spellings_of_the_same_lines_are_the_same_state() -> None:
    """Lists in brackets, a class in one line, the older way to name queues, names and aliases."""
    other = ROCE.replace(
        "class NO-LOSS queue-num 4\nset class-of-service forwarding-classes class NO-LOSS no-loss\n"
        "set class-of-service forwarding-classes class NO-LOSS pfc-priority 3\n",
        "class NO-LOSS queue-num 4 no-loss pfc-priority 3\n",
    )
    other = other.replace("class CNP queue-num 3", "queue 3 CNP")
    other = other.replace("code-points 110000", "code-points cs6")
    other = other.replace(
        "code-points 011010\nset class-of-service classifiers dscp mydscp forwarding-class NO-LOSS "
        "loss-priority low code-points af32\n",
        "code-points [ 011010 storage ]\n",
    )
    other += "set class-of-service code-point-aliases dscp storage 011100\n"
    other = other.replace("scheduler-map sm1", 'scheduler-map "sm1"')
    assert len(other.splitlines()) == len(ROCE.splitlines()) - 2
    assert JUNOS.read(other) == JUNOS.read(ROCE)


def test_what_stands_around_an_output_is_passed_over() -> None:
    around = f"admin@leaf> show configuration | display set \n{ROCE}\n{{master:0}}\n[edit]\n# end\n"
    around += "deactivate class-of-service shared-buffer\n"
    assert JUNOS.read(around) == JUNOS.read(ROCE)


@pytest.mark.parametrize("text", ["", "\n", "set system host-name leaf\n"])
def test_a_device_without_class_of_service_is_empty(text: str) -> None:
    assert JUNOS.read(text) == {}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("! device: leaf (DCS-7060, EOS-4.30)\nhostname leaf\n", "line 1 "),
        ("set system host-name leaf\nclass-of-service {\n    interfaces {\n", "line 2 "),
        (sonic_text(sonic_roce(("Ethernet0",))), "line 1 "),
        ("<rpc-reply><configuration/></rpc-reply>", "line 1 "),
        ("nv set interface swp1 qos pfc profile ROCE\n", "line 1 "),
    ],
)
def test_what_another_platform_says_is_refused(text: str, line: str) -> None:
    with pytest.raises(BadState, match=f"{line}is not a line of `show configuration"):
        JUNOS.read(text)


def test_a_reply_of_another_form_is_not_taken_for_an_empty_one() -> None:
    said = JUNOS.netconf().said
    reply = "<rpc-reply><configuration><system/></configuration></rpc-reply>"
    with pytest.raises(BadState):
        JUNOS.read(said(reply))
    assert JUNOS.read(said("<rpc-reply><configuration-set></configuration-set></rpc-reply>")) == {}


def test_what_show_compare_prints_is_read_from_its_reply() -> None:
    """As Juniper has it ("Compare the Active or Candidate Configuration to a Prior Version")."""
    compared = JUNOS.netconf().compared
    reply = (
        '<rpc-reply xmlns:junos="URL"><configuration-information><configuration-output>\n'
        "[edit class-of-service interfaces]\n+    et-0/0/0 {\n+        scheduler-map DLCP;\n"
        "+    }\n-    &lt;*&gt; {}\n</configuration-output></configuration-information></rpc-reply>"
    )
    assert compared(reply) == (
        "[edit class-of-service interfaces]\n+    et-0/0/0 {\n+        scheduler-map DLCP;\n"
        "+    }\n-    <*> {}"
    )
    for empty in (">\n</configuration-output>", "/>", "></configuration-output>"):
        assert compared(f"<rpc-reply><configuration-output{empty}</rpc-reply>") == ""
    with pytest.raises(BadState, match="has no <configuration-output>"):
        compared("<rpc-reply><ok/></rpc-reply>")


# --- lines about lines ---------------------------------------------------------------

OURS = "set class-of-service interfaces et-0/0/0 scheduler-map DLCP\n"


@pytest.mark.parametrize(
    "path",
    [
        "class-of-service",
        "class-of-service interfaces et-0/0/0",
        "class-of-service interfaces et-0/0/0 scheduler-map",
    ],
)
def test_what_is_deactivated_is_not_there_and_ours_does_not_come_near_it(path: str) -> None:
    text = f"{OURS}deactivate {path}\n"
    assert Place("interface map", "et-0/0/0", "") not in JUNOS.read(text)
    assert f"deactivated: `deactivate {path}`: lines of the plan" in refusal(text, intent())


def test_what_is_deactivated_elsewhere_matters_to_nobody() -> None:
    text = (
        "set class-of-service shared-buffer ingress percent 100\n"
        "set class-of-service interfaces et-0/0/10 scheduler-map DLCP\n"
        "deactivate class-of-service shared-buffer\n"
        "deactivate class-of-service interfaces et-0/0/1\n"  # not et-0/0/10
        "deactivate class-of-service interfaces et-0/0/10\n"
        "deactivate system ntp\n"
    )
    present, found = planned(text, intent())
    assert found.changes
    assert Place("interface map", "et-0/0/10", "") not in present


def test_a_group_that_is_applied_and_has_class_of_service_is_refused_by_name() -> None:
    group = "set groups QOS class-of-service interfaces <et-*> scheduler-map theirs\n"
    rest = "set groups re0 system host-name leaf\nset apply-groups [ re0 re1 ]\n"
    assert planned(group + rest, intent())[1].changes  # it is applied nowhere
    for applied in (
        "set apply-groups QOS\n",
        "set apply-groups [ re0 QOS ]\n",
        "set class-of-service apply-groups QOS\n",
        "set class-of-service interfaces et-0/0/0 apply-groups QOS\n",
    ):
        said = refusal(group + rest + applied, intent())
        assert (
            "groups: `set groups QOS class-of-service ...` is applied, and switchcfg does not read"
            in said
        )


def test_a_removal_near_what_is_deactivated_is_refused_too() -> None:
    wanted = intent()
    present, made = planned("", wanted)
    text = JUNOS.write(after(present, made.changes))
    there = JUNOS.read(f"{text}deactivate class-of-service schedulers\n")
    with pytest.raises(Refused, match="deactivated: `deactivate class-of-service schedulers`"):
        removal(*wanted, JUNOS, there)


# --- RoCE ----------------------------------------------------------------------------


def test_a_lossless_queue_that_is_not_kept_is_refused() -> None:
    said = refusal(ROCE, intent())
    assert f"lossless: {PORT} queue 4 has PFC: name it in [keep] queues" in said
    assert f"kept: {PORT} has 'sm1', and the plan would replace it" in said
    assert f"kept: {PORT} has 'mydscp'" in said


def test_roce_is_planned_without_losing_a_line_of_it() -> None:
    wanted = intent(KEEP)
    device = JunosLines()
    device.do(ROCE)
    before = set(device.have)
    present, made = planned(device.says(), wanted)
    for step in made.steps:
        device.do(step.payload)
    # The two bindings that the intent names are ours now; all else is there.
    assert before - device.have == {
        f"class-of-service interfaces {PORT} scheduler-map sm1",
        f"class-of-service interfaces {PORT} unit 0 classifiers dscp mydscp",
    }
    # Kept queues have their classes, their code points, for IPv6 as well, and their schedulers.
    for family in ("dscp", "dscp-ipv6"):
        stem = f"class-of-service classifiers {family} DLCP forwarding-class"
        assert f"{stem} NO-LOSS loss-priority low code-points 011010" in device.have
        assert f"{stem} NO-LOSS loss-priority low code-points 011100" in device.have
        assert f"{stem} CNP loss-priority low code-points 110000" in device.have
        points = [line[-6:] for line in device.have if line.startswith(f"{stem} ")]
        assert sorted(points) == [f"{dscp:06b}" for dscp in range(64)]
    stem = "class-of-service scheduler-maps DLCP forwarding-class"
    assert f"{stem} NO-LOSS scheduler s1" in device.have
    assert f"{stem} CNP scheduler s2-cnp" in device.have
    assert not any("queue-num 3" in line or "queue-num 4" in line for line in device.have - before)
    # A second plan is empty, also once `replaces` is taken out of the intent.
    for again in (wanted, intent("[keep]\nqueues = [3, 4]\n")):
        assert not planned(device.says(), again)[1].changes
    back = reverse(wanted[0], made, wanted[1], JUNOS, JUNOS.read(device.says()))
    for step in back.steps:
        device.do(step.payload)
    assert device.have == before
    assert JUNOS.read(device.says()) == present


def test_a_removal_does_not_leave_a_port_with_pfc_without_its_schedulers() -> None:
    device, wanted = JunosLines(), intent(KEEP)
    device.do(ROCE)
    told(device, wanted, plan)
    with pytest.raises(Refused, match="rollback") as caught:
        removal(*wanted, JUNOS, JUNOS.read(device.says()))
    assert f"lossless: {PORT} has PFC, and the plan would remove 'DLCP', which serves" in str(
        caught.value
    )


def test_a_removal_where_ours_serves_no_lossless_queue_is_no_loss() -> None:
    text = "\n".join(line for line in ROCE.splitlines() if "mydscp" not in line)
    device, wanted = JunosLines(), intent(KEEP)
    device.do(text)
    made = planned(device.says(), wanted)[1]
    told(device, wanted, plan)
    back = reverse(wanted[0], made, wanted[1], JUNOS, JUNOS.read(device.says()))
    assert not JUNOS.takes(JUNOS.read(device.says()), back.changes).problems


def test_code_points_that_the_intent_keeps_go_to_the_class_of_the_queue() -> None:
    present, made = planned(ROCE, intent(f"{KEEP}[keep.dscp]\n40 = 4\n"))
    then = after(present, made.changes)
    assert Place("classifier", "DLCP|NO-LOSS|low|101000", "") in then
    assert Place("class queue", "DLCP-Q4", "") not in then


def test_a_code_point_of_a_kept_queue_may_not_be_a_class_of_ours() -> None:
    said = refusal(ROCE, intent(KEEP, classes=""))
    assert f"kept-dscp: {PORT}: code point 26 goes to queue 4 today, which is kept" in said


def test_a_queue_that_pfc_pauses_is_found_by_the_profile_of_the_port() -> None:
    """Without classes of its own: the default ones, whose queues have their priorities' numbers."""
    stem = "set class-of-service congestion-notification-profile cnp"
    port = f"set class-of-service interfaces {PORT} congestion-notification-profile cnp\n"
    on_input = f"{port}{stem} input ieee-802.1 code-point 011 pfc\n"
    assert f"lossless: {PORT} queue 3 has PFC" in refusal(on_input, intent())
    on_output = f"{port}{stem} output ieee-802.1 code-point 101 flow-control-queue 5\n"
    assert f"lossless: {PORT} queue 5 has PFC" in refusal(on_output, intent())
    planned(on_output.replace(PORT, "et-0/0/9"), intent())


def test_the_queue_of_a_lossless_class_is_not_for_ours_whatever_the_port() -> None:
    line = "set class-of-service forwarding-classes class storage queue-num 5 no-loss\n"
    assert f"lossless: {PORT} queue 5 has PFC" in refusal(line, intent())
    planned(line, intent("[keep]\nqueues = [5]\n"))


def test_a_lossless_class_without_a_scheduler_to_go_on_with_is_refused() -> None:
    text = ROCE.replace(
        "set class-of-service scheduler-maps sm1 forwarding-class NO-LOSS scheduler s1\n", ""
    )
    said = refusal(text, intent(KEEP))
    assert f"kept: {PORT} has no scheduler for class 'NO-LOSS', which is lossless" in said


def test_ports_of_one_group_with_different_schedulers_or_classes_are_refused() -> None:
    other = ROCE.replace("sm1", "sm2").replace("mydscp", "mydscp2").replace(PORT, "et-0/0/1")
    other = other.replace("NO-LOSS scheduler s1", "NO-LOSS scheduler s3")
    other = other.replace("NO-LOSS", "OTHER").replace("OTHER scheduler", "NO-LOSS scheduler")
    keep = KEEP.replace('"sm1"', '"sm1", "sm2", "mydscp2"')
    text = f'schema = 1\n[fabric]\nname = "lab"\n{keep}{CLASSES}[[device]]\nname = "leaf"\n'
    text += 'platform = "junos"\n[[device.ports]]\nnames = ["et-0/0/[0-1]"]\nrate = "1Gbit"\n'
    found = parse(text, "intent.toml")
    said = refusal(ROCE + other, (found, found.device("leaf")))
    assert "kept-dscp: code point 26 goes to 'OTHER' on et-0/0/1 and to 'NO-LOSS' on" in said
    assert "kept: class 'NO-LOSS' has scheduler 's3' on et-0/0/1 and 's1' on other ports" in said


@pytest.mark.parametrize("pattern", ["et-*", "<et-*>", "*"])
def test_what_a_port_has_by_a_pattern_is_refused_by_its_name(pattern: str) -> None:
    """Apstra configures `et-*`: what stands for one port alone would take the place of all that."""
    text = ROCE.replace(PORT, pattern)
    said = refusal(text, intent(KEEP))
    assert f"kept: {PORT} has `scheduler-map sm1` by the pattern {pattern!r}" in said
    planned(text.replace(pattern, "xe-*"), intent(KEEP))


@pytest.mark.parametrize(
    "line",
    [
        "forwarding-class-set lossless output-traffic-control-profile tcp1",
        "output-traffic-control-profile tcp1",
        "unit * classifiers dscp mydscp",
        "classifiers dscp mydscp",
        "unit 0 forwarding-class NO-LOSS",
    ],
)
def test_what_ours_cannot_stand_beside_is_refused_by_its_line(line: str) -> None:
    text = f"set class-of-service interfaces {PORT} {line}\n"
    said = refusal(text, intent('[keep]\nreplaces = ["tcp1", "mydscp"]\n'))
    assert f'unread: {PORT}: "set class-of-service interfaces {PORT} {line}": conflicts' in said
    planned(text.replace(PORT, "et-0/0/9"), intent())


@pytest.mark.parametrize("line", ["unit 5 classifiers exp other", "shaping-rate 1g", "unit 0"])
def test_what_else_a_port_has_stays(line: str) -> None:
    device, wanted = JunosLines(), intent()
    device.do(f"set class-of-service interfaces {PORT} {line}\n")
    before = set(device.have)
    told(device, wanted, plan)
    assert line == "unit 0" or before <= device.have  # an entry is said by what is in it
    told(device, wanted, removal)
    assert line == "unit 0" or device.have == before


def told(device: JunosLines, wanted: tuple[Intent, Device], how: Callable[..., Plan]) -> None:
    present = JUNOS.read(device.says())
    made = how(*wanted, JUNOS, present)
    for step in made.steps:
        device.do(step.payload)
    assert JUNOS.read(device.says()) == after(present, made.changes)


@pytest.mark.parametrize("spray", ["hash", "packet", "keep"])
def test_a_removal_leaves_nothing(spray: str) -> None:
    """No entry of a list, and no mode that has no name."""
    device = JunosLines()
    text = f'schema = 1\n[fabric]\nname = "lab"\nspray = "{spray}"\n{CLASSES}[[device]]\n'
    text += f'name = "leaf"\nplatform = "junos"\n[[device.ports]]\nnames = ["{PORT}"]\n'
    found = parse(f'{text}rate = "100Gbit"\n', "intent.toml")
    wanted = (found, found.device("leaf"))
    told(device, wanted, plan)
    told(device, wanted, removal)
    assert device.have == set()


# --- writing -------------------------------------------------------------------------


def test_ipv6_is_classified_as_ipv4_is_unless_the_chip_has_one_classifier_for_both() -> None:
    both = JUNOS.render(*intent())
    assert {place.name for place in both.state if place.kind == "classifier ipv6"} == {
        place.name for place in both.state if place.kind == "classifier"
    }
    assert both.state[Place("interface classifier ipv6", PORT, "")] == "DLCP"
    assert (
        "IPv6: has its own classifier; write dscp_ipv6 = false for chips that have none"
        in both.degraded
    )
    one = JUNOS.render(*intent(more="dscp_ipv6 = false\n"))
    assert not [place for place in one.state if "ipv6" in place.kind]
    assert (
        "IPv6: has no classifier of its own; the chip decides how the IPv4 classifier applies"
        in one.degraded
    )


def test_only_junos_has_chips_without_classifiers_of_ipv6() -> None:
    text = 'schema = 1\n[fabric]\nname = "lab"\n[[device]]\nname = "a"\nplatform = "eos"\n'
    text += 'dscp_ipv6 = true\n[[device.ports]]\nnames = ["Ethernet1"]\nrate = "1Gbit"\n'
    with pytest.raises(BadIntent, match=r"toml:7: device\[0\].dscp_ipv6: only junos"):
        parse(text, "intent.toml")


def test_the_first_queue_is_strict_high_and_has_no_ecn_which_is_said() -> None:
    found = JUNOS.render(*intent())
    assert found.state[Place("scheduler priority", "DLCP-Q7", "")] == "strict-high"
    ecn = [place.name for place in found.state if place.kind == "scheduler ecn"]
    assert ecn == ["DLCP-Q6"]
    assert Place("scheduler drop", "DLCP-Q7|low", "") not in found.state
    assert "front: no ECN: Junos has none on strict-high queues" in found.degraded
    assert any(
        "some chips drop Not-ECT packets only when the queue is full" in each
        for each in found.degraded
    )


def levels(mark: str) -> list[int]:
    """The fill levels of the second queue's marks."""
    state = JUNOS.render(*intent(queues=f"[queues]\nmark = {mark}\n")).state
    profile = state[Place("scheduler drop", "DLCP-Q6|low", "")]
    return [
        int(place.name.split("|")[1])
        for place in state
        if place.kind == "drop profile" and place.name.startswith(f"{profile}|")
    ]


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        ("[0.2, 0.5]", [20, 50]),
        ("[0.004, 0.006]", [1, 2]),
        ("[0.296, 0.604]", [30, 60]),
        ("[0.3, 0.3]", [30, 31]),
        ("[0.998, 1.0]", [99, 100]),
        ("[1.0, 1.0]", [99, 100]),
    ],
)
def test_fill_levels_are_the_nearest_and_two_different_ones(mark: str, expected: list[int]) -> None:
    assert levels(mark) == expected


def test_buffers_of_all_queues_are_never_above_the_whole() -> None:
    six = "".join(
        f'c{each} = {{ rank = {each}, dscp = [{each}], ecn = ["ect0"] }}\n' for each in range(6)
    )
    state = JUNOS.render(*intent(classes=f"[classes]\n{six}")).state
    percents = [int(state[place]) for place in state if place.kind == "scheduler buffer"]
    assert len(percents) == 6
    assert sum(percents) <= 100
