import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchcfg.errors import BadIntent
from switchcfg.intent.classes import shared_classes
from switchcfg.intent.intent import MAX_TEXT, parse
from tests.switchcfg.intents import EXAMPLES, NAME, WHOLE, whole


def test_every_value_is_where_it_belongs() -> None:
    intent = whole()
    assert (intent.fabric, intent.prefix, intent.spray) == ("pod1", "DLCP", "hash")
    assert [each.name for each in intent.classes] == ["control", "front", "back"]
    assert intent.classes[1].ect == (True, False)
    assert [each.share for each in intent.classes] == pytest.approx([1 / 3, 0.4, 0.2])
    assert intent.queueing.buffer == 512 << 10
    assert intent.queueing.mark == (0.2, 0.5)
    assert intent.keep.dscp == {24: 3}
    assert intent.keep.queues == (3, 4)
    assert intent.keep.ports == ("Ethernet96", "Ethernet100")
    leaf = intent.device("leaf1")
    assert leaf.ports == ("Ethernet0", "Ethernet4", "Ethernet8", "Ethernet40", "Ethernet60")
    assert [group.buffer for group in leaf.groups] == [512 << 10, 1 << 20]
    assert leaf.groups[1].rate == 400 * 10**9


def test_the_least_that_is_needed_has_the_classes_of_the_daemon() -> None:
    intent = parse(EXAMPLES["minimal"], NAME)
    assert intent.classes == shared_classes()
    assert [each.name for each in intent.classes] == ["control", "front", "middle", "back", "bulk"]
    assert intent.queueing.rest == "bulk"


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_an_intent(name: str) -> None:
    assert parse(EXAMPLES[name], name).devices


def test_without_ecn_nothing_is_marked() -> None:
    assert whole("ecn = true\nmark = [0.2, 0.5]", "ecn = false").queueing.mark is None


MUTATIONS = {
    # what is replaced, what by, and what the error says
    "schema of a later version": ("schema = 1", "schema = 2", ":1: schema: this version of"),
    "no schema": ("schema = 1\n", "", ":1: : the key 'schema' is missing"),
    "unknown table": ("[keep]", "[keeps]", ":20: keeps: unknown key 'keeps'; did you mean 'keep'?"),
    "misspelt key": ("buffer = \"512KiB\"", "bufer = 1", ":9: queues.bufer: unknown key 'bufer'"),
    "misspelt key that is needed": (
        'name = "leaf2"', 'nmae = "leaf2"',
        ":44: device[1].nmae: unknown key 'nmae'; did you mean 'name'?",
    ),
    "misspelt table of classes that another names": (
        "[classes]", "[clases]", ":15: clases: unknown key 'clases'; did you mean 'classes'?",
    ),
    "misspelt list of marks": (
        'dscp = [48], ecn = ["ect0"]', 'dscp = [48], enc = ["ect0"]',
        ":16: classes.control.enc: unknown key 'enc'; did you mean 'ecn'?",
    ),
    "misspelt ports": (
        '[[device.ports]]\nnames = ["Ethernet1/1"]', '[[device.port]]\nnames = ["Ethernet1/1"]',
        ":47: device[1].port: unknown key 'port'; did you mean 'ports'?",
    ),
    "key like none": ("ecn = true", "colour = true", ":11: queues.colour: unknown key 'colour' ("),
    "rate above what any port has": (
        '"25Gbit"', '"25000Gbit"', ":49: device[1].ports[0].rate: Ethernet1/1 has 1600Gbit at most",
    ),
    "rate of no port of a switch": (
        '"25Gbit"', '"25kbit"', ":49: device[1].ports[0].rate: 25000 is outside",
    ),
    "rate of hardly a port": (
        '"25Gbit"', '"2Mbit"', ":49: device[1].ports[0].rate: Ethernet1/1: 2Mbit is less than any",
    ),
    "no name": ('name = "pod1"\n', "", ":3: fabric: the key 'name' is missing"),
    "name with a line's end": ('"pod1"', '"pod1\\nno shut"', ":4: fabric.name: 'pod1\\nno shut'"),
    "prefix in small letters": ('"DLCP"', '"dlcp"', ":5: fabric.prefix"),
    "unknown spraying": ('"hash"', '"magic"', ":6: fabric.spray: 'magic' is not one of hash"),
    "buffer without a unit that is known": ('"512KiB"', '"512kb"', ":9: queues.buffer"),
    "buffer too small": ('"512KiB"', '"1KiB"', ":9: queues.buffer: 1024 is outside"),
    "rest that is no class": ('"back"\necn', '"bulk"\necn', ":10: queues.rest: 'bulk' is not one"),
    "ecn that is no flag": ("ecn = true", "ecn = 1", ":11: queues.ecn: 1 is neither"),
    "nothing left of a packet": ("ecn = true", "trim = 10", ":11: queues.trim: 10 is outside 64"),
    "mark without ecn": ("ecn = true", "ecn = false", ":12: queues.mark: has no effect"),
    "ramp the wrong way round": ("mark = [0.2, 0.5]", "mark = [0.5, 0.2]", ":12: queues.mark"),
    "ramp beyond the queue": ("mark = [0.2, 0.5]", "mark = [0.5, 1.2]", ":12: queues.mark"),
    "ramp of one number": ("mark = [0.2, 0.5]", "mark = [0.5]", ":12: queues.mark"),
    "a curve missing": (", [0.2, 0.5]]", "]", ":13: queues.drop: 1 curves for 2 drop precedences"),
    "rank twice": ("rank = 2", "rank = 1", ":15: classes: ranks must be"),
    "dscp twice": ("[10, 14]", "[10, 38]", ":18: classes.back: class front already has dscp 38"),
    "dscp too large": ("[10, 14]", "[10, 64]", ":18: classes.back.dscp: 64 is outside 0..63"),
    "dscp as text": ("[10, 14]", '[10, "af12"]', ":18: classes.back.dscp: 'af12' is not a whole"),
    "dscp as a truth value": ("[10, 14]", "[10, true]", ":18: classes.back.dscp: True"),
    "four drop precedences": (
        "[10, 14]", "[10, 12, 14, 16]", ":18: classes.back.dscp: 4 drop precedences"
    ),
    "no drop precedence": ("[10, 14]", "[]", ":18: classes.back.dscp: 0 drop precedences"),
    "ecn of another length": (
        'dscp = [48], ecn = ["ect0"]', 'dscp = [48], ecn = []',
        ":16: classes.control.ecn: needs one entry per drop precedence",
    ),
    "ect1": ('[48], ecn = ["ect0"]', '[48], ecn = ["ect1"]', ":16: classes.control.ecn: 'ect1'"),
    "shares beyond the whole": ("share = 0.4", "share = 0.9", ":15: classes: the shares sum to"),
    "share below nothing": ("share = 0.4", "share = -0.4", ":17: classes.front.share"),
    "share that is no number": ("share = 0.4", "share = nan", ":17: classes.front.share: nan"),
    "class name of two words": ("front =", '"front row" =', ":17: classes.front row: the name of"),
    "kept queue that is none": ("queues = [4]", "queues = [8]", ":21: keep.queues: 8 is outside"),
    "kept queue twice": ("queues = [4]", "queues = [4, 4]", ":21: keep.queues: an entry is listed"),
    "kept code point of a class": ("24 = 3", "34 = 3", ":25: keep.dscp.34: class 'front' sends"),
    "kept code point with a zero": ("24 = 3", "024 = 3", ":25: keep.dscp.024: must be a DSCP: 0"),
    "kept port of a device": (
        'ports = ["Ethernet[96-100/4]"]', 'ports = ["Ethernet40"]',
        ":33: device[0].ports: Ethernet40 is also in [keep]",
    ),
    "kept ports of a bad range": (
        "Ethernet[96-100/4]", "Ethernet[96-", ":22: keep.ports: 'Ethernet[96-': a range",
    ),
    "unknown platform": ('"eos"', '"ios"', ":45: device[1].platform: 'ios' is not one of sonic"),
    "device twice": ('"leaf2"', '"leaf1"', ":44: device[1].name: 'leaf1' is the name of two"),
    "device without a name": ('name = "leaf2"\n', "", ":43: device[1]: the key 'name' is missing"),
    "address with an option": ('"192.0.2.1"', '"-oProxyCommand"', ":30: device[0].address"),
    "port of another platform": (
        '"Ethernet40"', '"swp1"', ":34: device[0].ports[0].names: 'swp1' is not a port of sonic",
    ),
    "port with a line's end": ('"Ethernet40"', '"Ethernet40\\nno shut"', ":34: device[0].ports[0]"),
    "port twice": ('"Ethernet40"', '"Ethernet4"', ":33: device[0].ports: Ethernet4 is listed"),
    "range the wrong way round": ("[0-8/4]", "[8-0/4]", ":34: device[0].ports[0].names: 'Ether"),
    "range without end": ("[0-8/4]", "[0-9999]", ":34: device[0].ports[0].names: 'Ethernet[0-9999"),
    "range without a step": ("[0-8/4]", "[0-8/0]", ":34: device[0].ports[0].names"),
    "no port": ('["Ethernet1/1"]', "[]", ":47: device[1].ports: names no port"),
    "rate without a unit": ('"25Gbit"', '"25"', ":49: device[1].ports[0].rate"),
    "rate of nothing": ('"25Gbit"', '"0Gbit"', ":49: device[1].ports[0].rate: 0 is outside"),
    "group twice": ('group = "UP"\n', "", ":33: device[0].ports: two port groups have the same"),
    "ports as one table": (
        '[[device.ports]]\nnames = ["Ethernet1/1"]', '[device.ports]\nnames = ["Ethernet1/1"]',
        ":47: device[1].ports: must be an array of tables: write [[ports]]",
    ),
    "a table that is a number": ("[queues]", "[x]\n[[queues]]", "queues: [{"),
    "no TOML": ("schema = 1", "schema = ", "Invalid value"),
}  # fmt: skip


@pytest.mark.parametrize("what", MUTATIONS)
def test_what_is_wrong_is_refused_with_file_line_and_field(what: str) -> None:
    before, after, says = MUTATIONS[what]
    with pytest.raises(BadIntent) as caught:
        whole(before, after)
    assert str(caught.value).startswith(NAME)
    assert says in str(caught.value)


def test_no_device_and_an_unknown_device_are_told_apart() -> None:
    with pytest.raises(BadIntent, match=r"0 devices: need 1 to 4096"):
        parse(WHOLE.partition("[[device]]")[0], NAME)
    with pytest.raises(BadIntent, match=r"no device 'leaf9'.*known: leaf1, leaf2"):
        whole().device("leaf9")


def test_a_file_that_is_too_large_or_too_deep_is_refused() -> None:
    with pytest.raises(BadIntent, match="at most"):
        parse("#" * (MAX_TEXT + 1), NAME)
    with pytest.raises(BadIntent, match=NAME):
        parse("x = " + "[" * 5000 + "]" * 5000, NAME)
    with pytest.raises(BadIntent, match="this int is not a table"):
        parse(WHOLE.partition("[fabric]")[0] + f"fabric = 0x1{'0' * 5000}", NAME)


@given(st.text(max_size=60), st.integers(0, len(WHOLE)))
def test_any_text_in_the_middle_is_an_intent_or_one_error(piece: str, at: int) -> None:
    try:
        parse(WHOLE[:at] + piece + WHOLE[at:], NAME)
    except BadIntent as exc:
        assert NAME in str(exc)  # noqa: PT017  # other errors must come through
