"""Lossless classes on Cumulus Linux: beside PFC that is there already, and where there is none."""

import pytest

from switchcfg.errors import CannotExpress, Refused
from switchcfg.intent.intent import Device, Intent, parse
from switchcfg.plan.plan import plan, removal, reverse
from switchcfg.plan.state import after
from switchcfg.platforms.nvue.platform import Nvue
from tests.switchcfg import printed
from tests.switchcfg.test_captured import CLASSES, captured, device

NVUE = Nvue()
ROCE = """
[[lossless]]
name = "roce"
priority = 3
dscp = [3, 24, 25, 26, 27, 28, 29, 30, 31]
share = 60
cable = "40m"
cnp = 48
"""
POINTS = "[3, 24, 25, 26, 27, 28, 29, 30, 31]"  # what goes to 3 by default, and one more
HEAD = "nv set interface swp1-4,32 type swp\n"
# As `captured` has RoCE on swp32, by default-global's marks.
MARKS = "mark = [40000, 200000]\n"
THEIRS = captured("nvue.roce").replace(
    "default-global traffic-class 3,5 max-threshold 200000\n",
    "default-global traffic-class 3,5 max-threshold 200000\n"
    "nv set qos congestion-control default-global traffic-class 3,5 min-threshold 40000\n",
)


def intent(lossless: str = ROCE, keep: str = "", port: str = "swp32") -> tuple[Intent, Device]:
    found = parse(
        f'schema = 1\n[fabric]\nname = "lab"\n{CLASSES}{keep}{lossless}[[device]]\nname = "leaf"\n'
        f'platform = "nvue"\n[[device.ports]]\nnames = ["{port}"]\nrate = "100Gbit"\n',
        "intent.toml",
    )
    return found, found.device("leaf")


def told(text: str, wanted: tuple[Intent, Device]) -> list[str]:
    """What a switch with this configuration is told; a second plan has nothing to say, however the
    switch prints what it has then."""
    had = device("nvue", text)
    made = plan(*wanted, NVUE, NVUE.read(text))
    for step in made.steps:
        had.do(step.payload)
    again = plan(*wanted, NVUE, NVUE.read(printed.nvue(had.says())))
    assert not again.changes
    return [line for step in made.steps for line in step.payload.splitlines()]


def refusal(text: str, wanted: tuple[Intent, Device]) -> str:
    with pytest.raises(Refused) as caught:
        plan(*wanted, NVUE, NVUE.read(text))
    return str(caught.value)


def test_where_there_is_no_pfc_ours_is_made() -> None:
    lines = told(HEAD, intent())
    for line in (
        "pfc DLCP switch-priority 3",
        "pfc DLCP rx enable",
        "pfc DLCP tx enable",
        "pfc DLCP cable-length 40",
        "egress-scheduler default-global traffic-class 3 mode dwrr",
        "egress-scheduler default-global traffic-class 3 bw-percent 60",
        "traffic-pool default-lossless memory-percent 50",
        "traffic-pool default-lossy memory-percent 50",
        "congestion-control DLCP traffic-class 3 max-threshold 1500000",
        "congestion-control DLCP traffic-class 3 ecn enable",
        # Else what is not ECT would be dropped there.
        "congestion-control DLCP traffic-class 3 red disable",
        "mapping default-global dscp 24 switch-priority 3",
        "mapping default-global dscp 48 switch-priority 7",
    ):
        assert f"nv set qos {line}" in lines
    bind = lines.index("nv set interface swp32 qos pfc profile DLCP")
    assert all(line.startswith("nv set interface") for line in lines[bind:])


def test_one_without_ecn_or_length_says_nothing_of_them() -> None:
    text = ROCE.replace('cable = "40m"', "ecn = false")
    lines = told(HEAD, intent(text))
    assert not [line for line in lines if "cable-length" in line or "DLCP traffic-class 3" in line]


def test_it_has_one_lossless_priority_group() -> None:
    two = ROCE.replace("60", "30") + ROCE.replace("roce", "two").replace(
        "priority = 3", "priority = 4"
    ).replace(POINTS, "[32]").replace("60", "30")
    with pytest.raises(CannotExpress, match="lossless: nvue has at most 1 "):
        plan(*intent(two), NVUE, NVUE.read(HEAD))


# --- PFC that is there ------------------------------------------------------------------


def test_a_profile_that_does_what_the_intent_says_stays() -> None:
    text = THEIRS + "nv set qos pfc roce-pfc cable-length 40\n"
    lines = told(text, intent(ROCE + MARKS))
    assert not [line for line in lines if " pfc " in line or "traffic-pool" in line]
    assert "nv set qos congestion-control DLCP traffic-class 3 max-threshold 200000" in lines
    # Neither does a removal end it, or take the memory that it needs.
    present = NVUE.read(text)
    applied = after(present, plan(*intent(ROCE + MARKS), NVUE, present).changes)
    gone = removal(*intent(ROCE + MARKS), NVUE, applied)
    left = after(applied, gone.changes)
    kinds = ("pfc", "interface pfc", "pool", "curve ecn")
    theirs = {place: value for place, value in present.items() if place.kind.startswith(kinds)}
    assert theirs.items() <= left.items()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("", "with cable-length by default, not 40"),
        ("nv set qos pfc roce-pfc cable-length 100\n", "with cable-length 100, not 40"),
        ("nv set qos pfc roce-pfc cable-length 40\nnv set qos pfc roce-pfc tx disable\n",
         "with tx disable, not enable"),
    ],
)  # fmt: skip
def test_another_profile_needs_a_word(more: str, why: str) -> None:
    says = f"kept: swp32 has PFC by 'roce-pfc', {why}: change it, or name it in [keep] replaces"
    assert says in refusal(THEIRS + more, intent(ROCE + MARKS))
    keep = '[keep]\nreplaces = ["roce-pfc"]\n'
    lines = told(THEIRS + more, intent(ROCE + MARKS, keep))
    assert "nv set interface swp32 qos pfc profile DLCP" in lines
    assert not [line for line in lines if "roce-pfc" in line]


def test_a_profile_with_more_priorities_is_not_replaced_at_all() -> None:
    text = THEIRS.replace("roce-pfc switch-priority 3", "roce-pfc switch-priority 3,4")
    keep = '[keep]\nqueues = [4]\nreplaces = ["roce-pfc"]\n'
    assert (
        "lossless: swp32 has PFC by 'roce-pfc' on 3, 4, with cable-length by default, not 40: "
        "the plan would replace it and end PFC on 4"
    ) in refusal(text, intent(ROCE + MARKS, keep))
    text += "nv set qos pfc roce-pfc cable-length 40\n"
    assert not [line for line in told(text, intent(ROCE + MARKS, keep)) if " pfc " in line]


def test_the_profile_of_all_ports_counts_where_a_port_has_none() -> None:
    text = (
        HEAD
        + "nv set qos pfc default-global switch-priority 3\n"
        + ("nv set qos traffic-pool default-lossless memory-percent 30\n")
    )
    assert "swp4 has PFC by 'default-global', with cable-length" in refusal(
        text, intent(port="swp4")
    )
    text += "".join(
        f"nv set qos pfc default-global {each}\n"
        for each in ("cable-length 40", "rx enable", "tx enable")
    )
    assert not [line for line in told(text, intent(port="swp4")) if " pfc " in line]


def test_pfc_of_another_priority_is_to_be_kept() -> None:
    text = THEIRS.replace("switch-priority 3\n", "switch-priority 4\n")
    said = refusal(text, intent(ROCE + MARKS))
    assert "lossless: swp32 queue 4 has PFC: name it in [keep] queues" in said
    assert "swp32 has PFC by 'roce-pfc' on 4, not on 3: the plan would replace it" in said


def test_code_points_that_are_protected_today_are_not_left_out() -> None:
    fewer = ROCE.replace(POINTS, POINTS.replace("3, ", "", 1)) + MARKS
    says = "lossless-dscp: swp32: code point 3 goes to queue 3 today, which has PFC; name it in"
    assert says in refusal(THEIRS + "nv set qos pfc roce-pfc cable-length 40\n", intent(fewer))
    # Where PFC is ours, so are they.
    lines = told(HEAD, intent())
    ours = HEAD + "".join(f"{line}\n" for line in lines)
    changed = told(ours, intent(ROCE.replace(POINTS, "[24]")))
    assert "nv set qos mapping default-global dscp 3 switch-priority 5" in changed


def test_code_points_of_other_ports_count_as_the_map_is_the_whole_switch_s() -> None:
    fewer = ROCE.replace(POINTS, POINTS.replace("3, ", "", 1))
    says = "lossless-dscp: leaf: code point 3 goes to queue 3 today, which has PFC; name it in"
    assert says in refusal(THEIRS, intent(fewer, port="swp4"))
    assert told(THEIRS, intent(ROCE, '[keep]\nreplaces = ["default-global"]\n', port="swp4"))


def test_marks_of_the_whole_switch_need_a_word() -> None:
    text = THEIRS + "nv set qos pfc roce-pfc cable-length 40\n"
    assert (
        "kept: swp32 marks in queue 3 from 40000 to 200000 by 'default-global', and the intent "
        "says 150000 to 1500000: change the intent, or name 'default-global' in [keep] replaces"
    ) in refusal(text, intent(ROCE))
    assert told(text, intent(ROCE, '[keep]\nreplaces = ["default-global"]\n'))


def test_how_a_queue_with_pfc_of_others_is_served_needs_a_word() -> None:
    text = (
        THEIRS
        + "nv set qos pfc roce-pfc cable-length 40\n"
        + (
            "nv set qos egress-scheduler default-global traffic-class 3 mode dwrr\n"
            "nv set qos egress-scheduler default-global traffic-class 3 bw-percent 50\n"
        )
    )
    assert "kept: leaf: traffic class 3 is served by dwrr 50, and the intent says dwrr 60" in (
        refusal(text, intent(ROCE + MARKS))
    )
    assert told(text, intent(ROCE.replace("60", "50") + MARKS))
    assert told(text, intent(ROCE, '[keep]\nreplaces = ["default-global"]\n'))


def test_weights_of_all_queues_fit() -> None:
    other = HEAD + "nv set qos egress-scheduler default-global traffic-class 4 bw-percent 50\n"
    keep = "[keep]\nqueues = [4]\n"
    assert (
        "the bw-percent of all traffic classes sum to 110 (3: 60, 4: 50), and at most 100"
        in refusal(other, intent(keep=keep))
    )
    assert told(other, intent(ROCE.replace("60", "50"), keep))
    # Queue 5 is one of ours: strict, and without a weight.
    lines = told(other.replace("traffic-class 4", "traffic-class 5"), intent())
    assert "nv unset qos egress-scheduler default-global traffic-class 5 bw-percent" in lines


def test_memory_that_is_dealt_already_is_not_dealt_anew() -> None:
    pool = "nv set qos traffic-pool {} memory-percent {}\n"
    text = HEAD + pool.format("default-lossless", 20) + pool.format("default-lossy", 80)
    assert not [line for line in told(text, intent()) if "traffic-pool" in line]
    text = HEAD + pool.format("default-lossy", 80)
    assert (
        "memory: leaf has traffic pools (default-lossy 80%), and none for lossless traffic: give "
        "default-lossless a memory-percent"
    ) in refusal(text, intent())


# --- ways back -------------------------------------------------------------------------------


def test_ways_back_end_where_they_began() -> None:
    wanted, present = intent(), NVUE.read(HEAD)
    made = plan(*wanted, NVUE, present)
    applied = after(present, made.changes)
    assert after(applied, reverse(wanted[0], made, wanted[1], NVUE, applied).changes) == present
    gone = removal(*wanted, NVUE, applied)
    assert after(applied, gone.changes) == present
    assert not gone.degraded


def test_a_removal_leaves_the_memory_that_others_need() -> None:
    text = HEAD + "nv set qos pfc theirs switch-priority 5\n"
    applied = after(NVUE.read(text), plan(*intent(), NVUE, NVUE.read(text)).changes)
    gone = removal(*intent(), NVUE, applied)
    assert gone.degraded == (
        "stays, because it is kept or differs from the intent: pool "
        "default-lossless = 50; pool default-lossy "
        "= 50",
    )
    text = (
        HEAD
        + "nv set qos traffic-pool default-lossless memory-percent 40\n"
        + ("nv set qos traffic-pool default-lossy memory-percent 50\n")
    )
    applied = after(NVUE.read(text), plan(*intent(), NVUE, NVUE.read(text)).changes)
    gone = removal(*intent(), NVUE, applied)
    assert not [change for change in gone.changes if change.place.kind == "pool"]


def test_another_priority_takes_the_place_of_the_first() -> None:
    ours = HEAD + "".join(f"{line}\n" for line in told(HEAD, intent()))
    lines = told(ours, intent(ROCE.replace("priority = 3", "priority = 2")))
    assert "nv set qos pfc DLCP switch-priority 2" in lines
    assert "nv unset qos pfc DLCP switch-priority 3" in lines
    assert "nv unset qos egress-scheduler default-global traffic-class 3 bw-percent" in lines
    assert "nv unset qos egress-scheduler default-global traffic-class 3 mode" in lines


def test_an_intent_that_drops_the_class_ends_its_pfc() -> None:
    ours = HEAD + "".join(f"{line}\n" for line in told(HEAD, intent()))
    lines = told(ours, intent(lossless=""))
    assert "nv unset interface swp32 qos pfc profile" in lines
    assert "nv unset qos pfc DLCP switch-priority 3" in lines
    assert "nv unset qos egress-scheduler default-global traffic-class 3 bw-percent" in lines
    assert "nv unset qos traffic-pool default-lossless memory-percent" in lines
    assert "nv unset qos traffic-pool default-lossy memory-percent" in lines
    # Memory that is dealt otherwise was not dealt by us, and others may need what we set aside.
    other = ours.replace("default-lossless memory-percent 50", "default-lossless memory-percent 40")
    lines = told(other, intent(lossless=""))
    assert not [line for line in lines if "traffic-pool" in line]
    lines = told(ours + "nv set qos pfc theirs switch-priority 5\n", intent(lossless=""))
    assert not [line for line in lines if "traffic-pool" in line]
