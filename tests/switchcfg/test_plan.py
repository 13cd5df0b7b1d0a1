import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchcfg.errors import BadPlan, Moved
from switchcfg.plan.plan import Plan, dump, load, plan, removal, reverse
from switchcfg.plan.state import Change, Place, after, difference, fingerprint
from switchcfg.plan.text import lines, summary
from switchcfg.platforms.eos import Eos
from switchcfg.platforms.json_patch import patch, pointer
from tests.switchcfg.intents import whole

EOS = Eos()
INTENT = whole()
LEAF = INTENT.device("leaf2")
BARE = EOS.read("hostname leaf2\ninterface Ethernet1/1\n")


def made() -> Plan:
    return plan(INTENT, LEAF, EOS, BARE)


def test_a_plan_is_saved_and_read_back_as_it_was() -> None:
    assert load(dump(made()), "x") == made()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not a plan"),
        ("[]", "is not a plan"),
        ("{}", "is not a plan"),
        ('{"seal": "x"}', "is not a plan"),
        ('{"switchcfg plan": 9, "seal": "x"}', "version 9"),
        ("[" * 100_000, "is not a plan"),
    ],
)
def test_what_is_no_plan_is_refused(text: str, says: str) -> None:
    with pytest.raises(BadPlan, match=says):
        load(text, "x")


def test_an_edited_plan_is_refused() -> None:
    with pytest.raises(BadPlan, match="edited or damaged"):
        load(dump(made()).replace("service-profile DLCP", "service-profile EVIL"), "x")


def test_a_device_that_moved_is_refused() -> None:
    made().check(BARE)
    with pytest.raises(Moved, match="leaf2: its configuration changed"):
        made().check(EOS.read("qos map dscp 3 to traffic-class 4"))


def test_a_second_plan_is_empty_and_says_so() -> None:
    then = after(BARE, made().changes)
    again = plan(INTENT, LEAF, EOS, then)
    assert not again.changes
    assert not again.steps
    assert "  no changes" in list(lines(again))
    assert summary([again]) == "No changes on 1 device."


def test_the_reverse_of_a_plan_ends_where_it_began_and_only_from_where_it_ended() -> None:
    then = after(BARE, made().changes)
    back = reverse(INTENT, made(), LEAF, EOS, then)
    assert after(then, back.changes) == BARE
    assert back.fingerprint == fingerprint(then)
    with pytest.raises(Moved, match="has changed since"):
        reverse(INTENT, made(), LEAF, EOS, BARE)


def test_removal_takes_what_is_ours_alone() -> None:
    then = after(BARE, made().changes)
    gone = after(then, removal(INTENT, LEAF, EOS, then).changes)
    assert not any("DLCP" in place.name or "DLCP" in value for place, value in gone.items())
    assert gone == BARE  # the map of the whole switch is the one that it begins with


def test_people_see_each_object_once_and_few_of_many_values() -> None:
    state = {Place("MAP", "M", str(number)): "1" for number in range(20)}
    changes = difference(
        {Place("MAP", "N", "a"): "1", Place("MAP", "O", "b"): "1"},
        state | {Place("MAP", "N", "a"): "2"},
        lambda *_: True,
    )
    shown = list(lines(replace(made(), changes=changes, steps=())))
    assert "  + MAP M" in shown
    assert "        ... and 12 more" in shown
    assert "      ~ a: 1 -> 2" in shown
    assert "      - b: 1" in shown
    assert summary([replace(made(), changes=changes)]) == (
        "Plan: 20 to add, 1 to change, 1 to remove on 1 device."
    )


PLACES = st.builds(Place, st.sampled_from("AB"), st.sampled_from("xyz"), st.sampled_from("123"))
STATES = st.dictionaries(PLACES, st.sampled_from("abc"), max_size=12)


@given(STATES, STATES)
def test_changes_make_the_desired_state_and_their_reverse_the_first(
    before: dict[Place, str], want: dict[Place, str]
) -> None:
    changes = difference(before, want, lambda *_: True)
    then = after(before, changes)
    assert then == want
    assert not difference(then, want, lambda *_: True)
    assert after(then, [change.reverse() for change in changes]) == before
    assert (fingerprint(before) == fingerprint(want)) == (before == want)


@given(STATES, STATES)
def test_what_is_not_owned_and_not_wanted_stays(
    before: dict[Place, str], want: dict[Place, str]
) -> None:
    then = after(before, difference(before, want, lambda place, _: place.kind == "A"))
    for place, value in before.items():
        if place.kind == "B" and place not in want:
            assert then[place] == value


def test_a_change_that_does_not_begin_with_what_is_there_is_refused() -> None:
    (change,) = difference({}, {Place("A", "x", "1"): "a"}, lambda *_: True)
    with pytest.raises(ValueError, match="not None"):
        after({Place("A", "x", "1"): "b"}, [change])


def test_pointers_escape_what_json_pointer_reserves() -> None:
    assert pointer(("a/b", "c~d")) == "/a~1b/c~0d"
    assert json.loads(json.dumps(patch({"T": {"k/1": {"f": "1"}}}, {}))) == [
        {"op": "remove", "path": "/T"}
    ]


def changed(*rows: tuple[str, str, str]) -> list[str]:
    """The lines of a plan that adds these values: kind, name, field = its own text."""
    changes = tuple(Change(Place(kind, name, field), None, field) for kind, name, field in rows)
    made = Plan("leaf", "sonic", "lab", "", changes, (), ())
    return [*lines(made)][1:]


def test_objects_with_the_same_changes_share_their_lines() -> None:
    ports = range(0, 128, 4)
    assert changed(*(("QUEUE", f"Ethernet{n}|5", "x") for n in ports)) == [
        "  + QUEUE Ethernet[0-124/4]|5",
        "      + x: x",
    ]
    rows = [("QUEUE", f"Ethernet{n}|{part}", "x") for n in ports for part in ("0-2", "5-6")]
    assert changed(*rows)[0] == "  + QUEUE Ethernet[0-124/4]|0-2, Ethernet[0-124/4]|5-6"
    assert changed(*(("curve", f"DLCP|{n}", "x") for n in range(3, 8)))[0] == "  + curve DLCP|[3-7]"
    assert len(changed(("QUEUE", "a", "x"), ("QUEUE", "b", "y"))) == 4
    # Values that are not shown count, too.
    many = [("MAP", name, str(field)) for name in "ab" for field in range(9)]
    assert changed(*many)[0] == "  + MAP a, b"
    assert len(changed(*many)) == 10
    assert len(changed(*many, ("MAP", "b", "ten"))) == 20
