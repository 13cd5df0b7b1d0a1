"""Templates of devices, and devices out of files."""

import json
from pathlib import Path
from typing import Any

import pytest

from switchcfg.cli.main import FAILED, SAME, main
from switchcfg.errors import BadIntent
from switchcfg.intent import inventory
from switchcfg.intent.intent import Intent, parse
from tests.switchcfg.intents import NAME

TEXT = """\
schema = 1
inventory = "devices.json"
[fabric]
name = "pod1"
[template.leaf]
side = "A"
[[template.leaf.ports]]
names = ["Ethernet[1-2]/1"]
rate = "100Gbit"
[template.spine]
platform = "junos"
[[template.spine.ports]]
names = ["et-0/0/[0-3]"]
rate = "400Gbit"
"""
OURS = [
    {"name": "leaf1", "platform": "eos", "address": "192.0.2.1", "template": "leaf"},
    {"name": "leaf2", "platform": "eos", "side": "B", "template": "leaf"},
    {"name": "spine1", "template": "spine"},
]


def netbox(name: str, role: str, platform: str | None, **custom: str) -> dict[str, Any]:
    """A device as /api/dcim/devices/ of NetBox 4 has it, but for fields that nobody reads."""
    return {
        "id": 7,
        "url": "http://netbox/api/dcim/devices/7/",
        "display": name,
        "name": name,
        "role": {"id": 1, "display": role.title(), "name": role.title(), "slug": role},
        "platform": platform and {"id": 2, "name": platform.upper(), "slug": platform},
        "status": {"value": "active", "label": "Active"},
        "primary_ip": {"id": 3, "family": {"value": 4}, "address": "192.0.2.7/24"},
        "custom_fields": {"switchcfg_side": None, **custom},
    }


def answer(*devices: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"count": len(devices), "next": None, "previous": None, "results": [*devices], **more}


def read(document: Any, text: str = TEXT) -> Intent:
    def file(name: str) -> str:
        assert name == "devices.json"
        return document if isinstance(document, str) else json.dumps(document)

    return parse(text, NAME, file)


def test_devices_of_a_list_stand_on_their_templates() -> None:
    found = read(OURS)
    assert [each.name for each in found.devices] == ["leaf1", "leaf2", "spine1"]
    leaf1, leaf2, spine1 = found.devices
    assert (leaf1.platform, leaf1.address, leaf1.side) == ("eos", "192.0.2.1", "A")
    assert leaf1.ports == ("Ethernet1/1", "Ethernet2/1")
    assert leaf2.side == "B"
    assert (spine1.platform, spine1.groups[0].rate) == ("junos", 400 * 10**9)


def test_devices_of_netbox_take_the_template_of_their_role_or_of_a_field() -> None:
    devices = (
        netbox("leaf1", "leaf", "arista_eos", switchcfg_side="B"),
        netbox("core1", "core", "juniper-junos", switchcfg_template="spine"),
    )
    leaf, core = read(answer(*devices)).devices
    assert (leaf.platform, leaf.address, leaf.side) == ("eos", "192.0.2.7", "B")
    assert (core.platform, core.ports[0]) == ("junos", "et-0/0/0")
    older = {**devices[0], "device_role": devices[0]["role"], "primary_ip": None}
    del older["role"]
    assert read(answer(older)).devices[0].address == ""


def test_the_file_goes_before_its_inventory_and_overrides_templates() -> None:
    text = (
        '[[device]]\nname = "canary"\nplatform = "eos"\ntemplate = "leaf"\n[[device.ports]]\n'
        'names = ["Ethernet9"]\nrate = "25Gbit"\n'
    )
    found = read(OURS, TEXT + text)
    assert [each.name for each in found.devices][:2] == ["canary", "leaf1"]
    assert (found.devices[0].ports, found.devices[0].side) == (("Ethernet9",), "A")


LONG = "?limit=0 for all"
MISTAKES: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "devices.json: is not JSON: "),
    "deep": ("[" * 100_000, "devices.json: is not JSON: "),
    "no devices in it": ({"devices": []}, "devices.json: must be a list of devices, or an answer"),
    "a number for a device": ([1], "devices.json: [0]: is not an object"),
    "a misspelt key": (
        [{**OURS[0], "adress": "x"}],
        "devices.json: [0].adress: unknown key 'adress'; did you mean 'address'?",
    ),
    "no such template": (
        [{**OURS[0], "template": "laef"}],
        "devices.json: [0].template: no [template.laef]; did you mean 'leaf'? (known: leaf, spine)",
    ),
    "a port of another platform": (
        [{**OURS[0], "platform": "sonic"}],
        f"{NAME}:8: template.leaf.ports[0].names: 'Ethernet1/1' is not a port of sonic",
    ),
    "no ports": (
        [{"name": "a", "platform": "eos"}], "devices.json: [0]: needs [[device.ports]] with names",
    ),
    "twice": ([OURS[0], OURS[0]], "devices.json: [1].name: 'leaf1' is the name of two devices"),
    "no name": (answer(netbox("", "leaf", "eos")), "devices.json: results[0]: the key 'name' is"),
    "no platform": (answer(netbox("a", "leaf", None)), "results[0]: the key 'platform' is missing"),
    "unknown platform": (
        answer(netbox("a", "leaf", "ios-xe")), "results[0].platform.slug: 'ios-xe' is not one of",
    ),
    "a role without a template": (
        answer(netbox("pdu1", "pdu", "eos")),
        "results[0].role.slug: no [template.pdu] (known: leaf, spine)",
    ),
    "an address with an option": (
        answer({**netbox("a", "leaf", "eos"), "primary_ip": {"address": "-oProxy/1"}}),
        "results[0].primary_ip.address: '-oProxy' is not a valid host name",
    ),
    "a page of several": (answer(next="http://netbox/?offset=50"), LONG),
    "fewer than there are": (answer(netbox("a", "leaf", "eos"), count=2), "1 of 2 devices: ask"),
    "nobody": ([], f"{NAME}:1: device: 0 devices"),
}  # fmt: skip


@pytest.mark.parametrize("what", MISTAKES)
def test_what_is_wrong_with_an_inventory_is_said_with_its_place(what: str) -> None:
    document, says = MISTAKES[what]
    with pytest.raises(BadIntent) as caught:
        read(document)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ('side = "A"', 'sdie = "A"', ":6: template.leaf.sdie: unknown key 'sdie'; did you mean"),
        ('platform = "junos"', 'flatporm = 1', ":11: template.spine.flatporm: unknown key"),
        ('side = "A"', 'name = "x"', ":6: template.leaf.name: belongs to [[device]], not to a"),
        ('side = "A"', 'template = "spine"', ":6: template.leaf.template: belongs to [[device]]"),
        ('"devices.json"', '""', ":2: inventory: '' is not a valid name of a file"),
        ("inventory =", "invntory =", ":2: invntory: unknown key 'invntory'; did you mean"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_template_is_said_even_where_nobody_takes_it(
    before: str, after: str, says: str
) -> None:
    assert TEXT.count(before) == 1
    with pytest.raises(BadIntent) as caught:
        read(OURS[:1], TEXT.replace(before, after))
    assert says in str(caught.value)


def test_an_inventory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "MAX_TEXT", 50)
    with pytest.raises(BadIntent, match=r"devices.json: \d+ characters, at most 50"):
        read(OURS)


def test_an_intent_without_a_file_reads_none() -> None:
    with pytest.raises(BadIntent, match=":2: inventory: only an intent in a file"):
        parse(TEXT, NAME)


def test_the_command_looks_beside_the_intent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / NAME).write_text(TEXT)
    assert main(["ports", str(tmp_path / NAME)]) == FAILED
    assert "devices.json: cannot be read" in capsys.readouterr().err
    (tmp_path / "devices.json").write_text(json.dumps(OURS))
    assert main(["ports", str(tmp_path / NAME), "--only", "leaf*"]) == SAME
    out = capsys.readouterr().out
    assert "leaf2 (eos):\n  Ethernet[1-2]/1: DLCP, 100Gbit" in out
    assert "spine1" not in out
