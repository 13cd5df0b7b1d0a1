"""A removal gives back what was there before switchcfg, or is refused."""

import json
from typing import Any

import pytest

from switchcfg.errors import Refused, SwitchcfgError
from switchcfg.plan.before import before
from switchcfg.plan.plan import Plan, plan, removal, reverse, treatments_of
from switchcfg.plan.state import Change, Place, after
from switchcfg.platforms.known import PLATFORMS
from tests.switchcfg.accounted import PORTS, wanted
from tests.switchcfg.cli_device import run
from tests.switchcfg.foreign_devices import DEVICES, intents
from tests.switchcfg.test_platforms import CommandLines, device_for


@pytest.mark.parametrize(("platform", "name"), DEVICES)
def test_a_removal_gives_back_the_very_state_or_is_refused(platform: str, name: str) -> None:
    kind = PLATFORMS[platform]
    present = kind.read(DEVICES[platform, name])
    planned = same = 0
    for intent, device in intents(platform):
        try:
            made = plan(intent, device, kind, present)
        except SwitchcfgError:
            continue
        planned += 1
        then = after(present, made.changes)
        try:
            gone = removal(intent, device, kind, then, before([made], then))
        except Refused:
            continue
        end = after(then, gone.changes)
        stays = {place for place in end if place.kind == "SWITCH_HASH" and place not in present}
        assert {place: end[place] for place in end if place not in stays} == present
        same += 1
    assert planned
    # On NX-OS, a port without a policy would have PFC again, and nothing that feeds its queue.
    assert same or (platform, name) == ("nxos", "RoCE")


def built(platform: str, text: str) -> Any:
    """A switch with a configuration."""
    device = device_for(platform)
    if platform == "sonic":
        device.tables = json.loads(text)
    elif isinstance(device, CommandLines):
        run(device.root, text)
    elif platform in ("junos", "nvue"):
        device.do(text)
    return device


ON_DEVICES = [("sonic", "stock"), ("sonic", "keys of several ports"), ("eos", "profile"),
              ("eos", "PFC"), ("junos", "RoCE"), ("nvue", "empty"), ("linux", "empty")]  # fmt: skip


@pytest.mark.parametrize(("platform", "name"), ON_DEVICES)
def test_the_device_has_each_line_again(platform: str, name: str) -> None:
    kind, device = PLATFORMS[platform], built(platform, DEVICES[platform, name])
    if platform == "linux":
        device.ports = PORTS["linux"]
    was = device.says()
    done = 0
    for intent, leaf in intents(platform):
        present = kind.read(device.says())
        try:
            made = plan(intent, leaf, kind, present)
            then = after(present, made.changes)
            removal(intent, leaf, kind, then, before([made], then))
        except SwitchcfgError:
            continue
        for step in made.steps:
            device.do(step.payload)
        now = kind.read(device.says())
        for step in removal(intent, leaf, kind, now, before([made], now)).steps:
            device.do(step.payload)
        end = kind.read(device.says())
        stays = {place for place in end if place.kind == "SWITCH_HASH"}  # SONiC cannot remove it
        assert {p: end[p] for p in end if p not in stays} == dict(kind.read(was))
        done += 1
    assert done


def test_values_that_others_changed_meanwhile_are_not_given_back() -> None:
    place, other = Place("kind", "a", ""), Place("kind", "b", "")

    def plan_of(*changes: Change) -> Plan:
        return Plan("leaf", "eos", "lab", "", changes, (), ())

    first = plan_of(Change(place, "1", "2"), Change(other, None, "x"))
    second = plan_of(Change(place, "2", "3"))
    assert before([first, second], {place: "3", other: "x"}) == {place: "1", other: None}
    assert before([first, second], {place: "4"}) == {}
    # Between the plans, somebody set another value: it counts.
    third = plan_of(Change(place, "7", "8"))
    assert before([first, second, third], {place: "8"}) == {place: "7"}
    # A removal was one of the plans.
    back = plan_of(Change(place, "2", "1"), Change(other, "x", None))
    assert before([first, back, plan_of(Change(place, "1", "5"))], {place: "5"}) == {
        place: "1",
        other: None,
    }


# --- rollback is judged as plans are --------------------------------------------------


@pytest.mark.parametrize(("platform", "name"), ON_DEVICES)
def test_a_rollback_of_an_unchanged_switch_is_never_refused(platform: str, name: str) -> None:
    kind = PLATFORMS[platform]
    done = 0
    for intent, leaf in intents(platform):
        device = built(platform, DEVICES[platform, name])
        if platform == "linux":
            device.ports = PORTS["linux"]
        was = kind.read(device.says())
        try:
            made = plan(intent, leaf, kind, was)
        except SwitchcfgError:
            continue
        for step in made.steps:
            device.do(step.payload)
        now = kind.read(device.says())
        back = reverse(intent, made, leaf, kind, now, then=treatments_of(kind, now))
        for step in back.steps:
            device.do(step.payload)
        end = kind.read(device.says())
        stays = {place for place in end if place.kind == "SWITCH_HASH"}  # SONiC cannot remove it
        assert {p: end[p] for p in end if p not in stays} == dict(was)
        done += 1
    assert done


def test_a_rollback_that_others_now_need_is_refused() -> None:
    """The plan sends code points 0 to 7 to queue 5; then another operator pauses this queue."""
    kind, device = PLATFORMS["eos"], built("eos", DEVICES["eos", "empty"])
    intent, leaf = wanted("eos")
    made = plan(intent, leaf, kind, kind.read(device.says()))
    for step in made.steps:
        device.do(step.payload)
    now = kind.read(device.says())
    then = treatments_of(kind, now)
    assert reverse(intent, made, leaf, kind, now, then=then).changes
    device.do("interface Ethernet1/1\n   priority-flow-control priority 5 no-drop\n")
    with pytest.raises(Refused) as caught:
        reverse(intent, made, leaf, kind, kind.read(device.says()), then=then)
    assert "kept-treatment: Ethernet1/1: DSCP 0-7: traffic class: 5 -> 1" in str(caught.value)
