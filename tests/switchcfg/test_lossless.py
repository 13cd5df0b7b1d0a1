"""Lossless classes of others in an intent, and what of them is the same on every platform."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from switchcfg.cli.main import main
from switchcfg.errors import BadIntent, CannotExpress
from switchcfg.intent.intent import Intent, parse
from switchcfg.intent.lossless import MARK, Lossless
from switchcfg.plan.kept import left_out, lossless
from switchcfg.plan.queues import Abilities, Layout, lay_out
from switchcfg.platforms.known import PLATFORMS
from switchcfg.platforms.platform import not_to_be_had
from tests.switchcfg.golden import DEVICES
from tests.switchcfg.intents import EXAMPLES, NAME

COLOURS = Abilities(curves=3, own_mark=True, spray=("hash",), lossless=2)
TEXT = """\
schema = 1
[fabric]
name = "lab"
[keep]
queues = [1]
[keep.dscp]
8 = 0
[[lossless]]
name = "roce"
priority = 3
dscp = [24, 25]
share = 60
cable = "300m"
cnp = 47
[[lossless]]
name = "storage"
priority = 4
dscp = [32]
share = 40
mark = ["64KiB", 131073]
[[device]]
name = "leaf"
platform = "eos"
[[device.ports]]
names = ["Ethernet1"]
rate = "100Gbit"
"""


def intent(before: str = "", after: str = "") -> Intent:
    assert TEXT.count(before) == 1 or not before
    return parse(TEXT.replace(before, after), NAME)


def layout(wanted: Intent) -> Layout:
    return lay_out(wanted, wanted.devices[0].groups[0], COLOURS)


def test_every_value_is_where_it_belongs() -> None:
    assert intent().lossless == (
        Lossless("roce", 3, (24, 25), 60, 300, MARK, 47),
        Lossless("storage", 4, (32,), 40, 0, (64 << 10, 131073), None),
    )
    assert parse(EXAMPLES["minimal"], NAME).lossless == ()
    # By priority, in whatever order they stand.
    assert [each.priority for each in intent("priority = 3", "priority = 5").lossless] == [4, 5]


def test_without_ecn_it_does_not_mark() -> None:
    assert intent('mark = ["64KiB", 131073]', "ecn = false").lossless[1].mark is None


MUTATIONS = {
    "no name": ('name = "roce"\n', "", ":8: lossless[0]: the key 'name' is missing"),
    "name of a class of ours": ('"roce"', '"front"', ":9: lossless[0].name: 'front' is the name"),
    "name twice": ('"storage"', '"roce"', ":16: lossless[1].name: 'roce' is the name of two"),
    "no priority of PFC": ("priority = 3", "priority = 8", ":10: lossless[0].priority: 8 is out"),
    "priority twice": (
        "priority = 4", "priority = 3", ":17: lossless[1].priority: class 'roce' already has 3",
    ),
    "a kept queue": ("priority = 3", "priority = 1", ":10: lossless[0].priority: queue 1 is a"),
    "the queue of a kept code point": ("priority = 3", "priority = 0", "queue 0 is a kept"),
    "no code point": ("[24, 25]", "[]", ":11: lossless[0].dscp: needs at least one code point"),
    "a class's code point": (
        "[24, 25]", "[26]", ":11: lossless[0].dscp: code point 26: class 'middle' sends it",
    ),
    "a kept code point": ("[24, 25]", "[8]", ":11: lossless[0].dscp: code point 8: [keep.dscp]"),
    "another one's code point": (
        "[32]", "[25]", ":18: lossless[1].dscp: code point 25: lossless class 'roce' already has",
    ),
    "no share": ("share = 60\n", "", ":8: lossless[0]: the key 'share' is missing"),
    "a share of nothing": ("share = 60", "share = 0", ":12: lossless[0].share: 0 is outside 1..1"),
    "more than all": (
        "share = 40", "share = 41",
        ":19: lossless[1].share: the shares of the lossless classes sum to 101",
    ),
    "length without a unit": ('"300m"', '"300"', ":13: lossless[0].cable: '300' is not a valid"),
    "no length": ('"300m"', '"0m"', ":13: lossless[0].cable: 0m is outside 1m..40000m"),
    "mark of one number": ('["64KiB", 131073]', "[70000]", ":20: lossless[1].mark: [70000] is not"),
    "mark that is a step": (
        '["64KiB", 131073]', "[70000, 70000]", "is not a pair [begin, certain] with begin <",
    ),
    "mark in parts of a queue": ('["64KiB", 131073]', "[0.2, 0.5]", "0.2 is not a size: write"),
    "mark without ecn": ("share = 40", "share = 40\necn = false", ":21: lossless[1].mark: has no"),
    "cnp of a lossless class": (
        "cnp = 47", "cnp = 32", ":14: lossless[0].cnp: code point 32: lossless class 'storage'",
    ),
    "cnp that is kept": ("cnp = 47", "cnp = 8", ":14: lossless[0].cnp: code point 8: [keep.dscp]"),
    "misspelt key": ("share = 60", "shares = 60", "unknown key 'shares'; did you mean 'share'?"),
    "unknown key": ("cnp = 47", "headroom = 1", ":14: lossless[0].headroom: unknown key"),
    "misspelt cnp": ("cnp = 47", "cpn = 47", "unknown key 'cpn'; did you mean 'cnp'?"),
    "one bracket": (
        '[[lossless]]\nname = "storage"', '[[loss]]\nname = "storage"', "loss: unknown key 'loss'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_mistakes_are_named_with_their_line(name: str) -> None:
    before, after, says = MUTATIONS[name]
    with pytest.raises(BadIntent) as caught:
        intent(before, after)
    assert says in str(caught.value)


def test_it_has_the_queue_of_its_priority_and_no_class_comes_there() -> None:
    wanted = intent()
    found = layout(wanted)
    assert [queue.index for queue in found.queues] == [7, 6, 5, 2]  # 0 and 1 are kept
    assert found.queues[-1].name == "back+bulk"
    to = found.queue_of(wanted)
    assert (to[24], to[25], to[32], to[8], to[0]) == (3, 3, 4, 0, 2)
    assert found.lossless == wanted.lossless


def test_what_receivers_send_back_goes_to_the_first_queue() -> None:
    wanted = intent()
    assert layout(wanted).queues[0].bands[0].dscps == (48, 47)
    assert layout(wanted).queue_of(wanted)[47] == 7
    # dlcpd's own table has the usual 48 there already.
    assert layout(intent("cnp = 47", "cnp = 48")).queues[0].bands[0].dscps == (48,)


def test_that_strict_queues_can_starve_it_is_said() -> None:
    assert (
        "roce: strict queues are served first: its share of 60% is a share of the rate that "
        "they leave"
    ) in layout(intent()).degraded
    assert not [
        text for text in layout(replace(intent(), lossless=())).degraded if "strict" in text
    ]


def test_lossless_classes_and_kept_queues_may_leave_none() -> None:
    wanted = intent("queues = [1]", "queues = [1, 2, 5, 6, 7]")
    with pytest.raises(CannotExpress, match=r"\[keep\] and \[\[lossless\]\] use every queue"):
        layout(wanted)


def test_flow_control_on_a_queue_of_the_intents_is_no_problem_and_on_another_is() -> None:
    assert lossless(intent(), "swp1", 3) == []
    assert lossless(intent(), "swp1", 5) == [
        "lossless: swp1 queue 5 has PFC: name it in [keep] queues"
    ]


def test_code_points_that_are_protected_today_are_not_left_out() -> None:
    today = {24: 3, 3: 3, 26: 3, 32: 4, 33: 4, 34: 4, 35: 4, 36: 4, 0: 0}
    assert left_out(intent(), "swp1", today) == [
        "lossless-dscp: swp1: code point 3 goes to queue 3 today, which has PFC; name it in dscp "
        "of [[lossless]] 'roce'",
        "lossless-dscp: swp1: code point 26 goes to queue 3 today, which has PFC; class "
        "'middle' sends it: give the class another code point under [classes]",
        "lossless-dscp: swp1: code points 33, 35 go to queue 4 today, which has PFC; name them in "
        "dscp of [[lossless]] 'storage'",
        "lossless-dscp: swp1: code points 34, 36 go to queue 4 today, which has PFC; class "
        "'front' sends them: give the class other code points under [classes]",
    ]


@pytest.mark.parametrize(
    "platform", [name for name, kind in PLATFORMS.items() if not kind.able.lossless]
)
def test_a_platform_without_them_refuses_the_intent_by_name(platform: str) -> None:
    said = f"lossless: {platform} cannot have"
    with pytest.raises(CannotExpress, match=f"{DEVICES[platform].name}: {said}"):
        PLATFORMS[platform].render(intent(), DEVICES[platform])


def test_no_platform_gets_more_of_them_than_it_has() -> None:
    device = DEVICES["eos"]
    assert not not_to_be_had(intent(), device, COLOURS)
    assert not_to_be_had(intent(), device, replace(COLOURS, lossless=1)) == (
        "lossless: eos has at most 1 [[lossless]] classes, not 2"
    )


def test_ports_shows_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    able = any(kind.able.lossless for kind in PLATFORMS.values())
    file = tmp_path / NAME
    file.write_text(EXAMPLES["roce"], "utf-8")
    main(["ports", str(file), "--json"])
    for device in json.loads(capsys.readouterr().out)["devices"].values():
        assert device["ports"].popitem()[1]["lossless"] == [
            {
                "queue": 3,
                "class": "roce",
                "dscp": [24],
                "share": 50,
                "cable": 40,
                "headroom": [23516, 48732],
                "ecn": [153600, 1536000],
            }
        ]
        assert (device["refused"] is None) == bool(PLATFORMS[device["platform"]].able.lossless)
    main(["ports", str(file)])
    said = capsys.readouterr().out
    for name, kind in PLATFORMS.items():
        refused = f"  refused: lossless: {name} cannot have [[lossless]] classes"
        assert kind.able.lossless or name in ("linux", "openconfig") or refused in said
    if able:
        assert "3      roce     24  " in said
        assert "153600-1536000  never: PFC, share 50%, cable 40m, headroom 23516-48732\n" in said
