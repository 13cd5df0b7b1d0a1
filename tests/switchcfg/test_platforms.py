import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchcfg.errors import BadState
from switchcfg.intent.intent import Device, Intent
from switchcfg.plan.state import State, after, difference
from switchcfg.platforms.known import PLATFORMS
from switchcfg.platforms.platform import NetconfPlatform, Step
from tests.switchcfg.cli_device import JunosLines, Lines, run, run_flat
from tests.switchcfg.golden import DEVICES, PAIRS, file, on_every_platform, rendered, taken
from tests.switchcfg.intents import EXAMPLES
from tests.switchcfg.linux_device import LinuxDevice

SEGMENT = re.compile(r"([\w:-]+)(?:\[([\w-]+)=([^\]]+)\])?")


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("example", EXAMPLES)
def test_what_switches_are_told_is_what_was_reviewed(example: str, platform: str) -> None:
    assert rendered(example, platform) == file(example, platform).read_text(encoding="utf-8")


def desired(example: str, platform: str) -> State:
    return PLATFORMS[platform].render(on_every_platform(example), DEVICES[platform]).state


@pytest.mark.parametrize(("example", "platform"), PAIRS)
def test_what_is_written_reads_back_as_the_same_state(example: str, platform: str) -> None:
    kind, state = PLATFORMS[platform], desired(example, platform)
    read = kind.read(kind.write(state))  # which also tells of ports, as nothing writes them
    assert {place: value for place, value in read.items() if place.kind != "port"} == state
    assert not difference(state, state, kind.owns(on_every_platform(example)))


class CommandLines:
    """EOS and NX-OS."""

    def __init__(self) -> None:
        self.root = Lines({"hostname leaf": Lines()})

    def do(self, payload: str) -> None:
        run(self.root, payload)

    def says(self) -> str:
        return self.root.text()


class FlatLines:
    """NVUE."""

    def __init__(self, make: str, unmake: str) -> None:
        self.make, self.unmake = make, unmake
        self.have: set[str] = {"system hostname leaf"}

    def do(self, payload: str) -> None:
        run_flat(self.have, payload, make=self.make, unmake=self.unmake)

    def says(self) -> str:
        return "".join(f"{self.make} {line}\n" for line in sorted(self.have))


class Documents:
    """SONiC: RFC 6902 patches on CONFIG_DB."""

    def __init__(self) -> None:
        self.tables: dict[str, Any] = {}

    def do(self, payload: str) -> None:
        for op in json.loads(payload):
            *above, last = [
                part.replace("~1", "/").replace("~0", "~") for part in op["path"].split("/")[1:]
            ]
            at = self.tables
            for part in above:
                at = at[part]
            if op["op"] == "add":
                assert last not in at
                at[last] = op["value"]
            elif op["op"] == "replace":
                assert last in at
                at[last] = op["value"]
            else:
                del at[last]
        assert all(self.tables.values()), "an empty table is refused"

    def says(self) -> str:
        return json.dumps(self.tables)


class Tree:
    """A gNMI target: one Set deletes, then updates, on the JSON of /qos."""

    def __init__(self) -> None:
        self.root: dict[str, Any] = {}

    def do(self, payload: str) -> None:
        body = json.loads(payload)
        for where in body["delete"]:
            *above, last = where.split("/")
            at = self.down(above)
            name, key, value = SEGMENT.fullmatch(last).groups()  # type: ignore[union-attr]
            if key is None:
                del at[name]
            else:
                kept = [row for row in at[name] if str(row[key]) != value]
                assert len(kept) == len(at[name]) - 1, f"{where}: there is nothing to delete"
                at[name] = kept
        for where, leaves in body["update"].items():
            self.down(where.split("/")).update(leaves)

    def down(self, segments: list[str]) -> dict[str, Any]:
        at = self.root
        for segment in segments:
            name, key, value = SEGMENT.fullmatch(segment).groups()  # type: ignore[union-attr]
            if key is None:
                at = at.setdefault(name, {})
                continue
            rows = at.setdefault(name, [])
            found = next((row for row in rows if str(row[key]) == value), None)
            if found is None:
                found = {key: value}
                rows.append(found)
            at = found
        return at

    def says(self) -> str:
        return json.dumps(self.root)


def device_for(platform: str) -> Any:
    return {
        "eos": CommandLines,
        "nxos": CommandLines,
        "linux": lambda: LinuxDevice(DEVICES["linux"].ports),
        "junos": JunosLines,
        "nvue": lambda: FlatLines("nv set", "nv unset"),
        "openconfig": Tree,
        "sonic": Documents,
    }[platform]()


def bring(device: Any, platform: str, intent: Intent, want: State) -> None:
    """Plan and apply, as the device says of itself what it is."""
    kind = PLATFORMS[platform]
    present = kind.read(device.says())
    for step in kind.steps(present, difference(present, want, kind.owns(intent))):
        device.do(step.payload)


@pytest.mark.parametrize("platform", PLATFORMS)
@settings(max_examples=12)
@given(data=st.data())
def test_a_device_told_the_steps_is_what_the_intent_wants_and_a_second_plan_is_empty(
    platform: str, data: st.DataObject
) -> None:
    kind, device = PLATFORMS[platform], device_for(platform)
    for example in data.draw(st.lists(st.sampled_from(taken(platform)), min_size=1, max_size=4)):
        intent, want = on_every_platform(example), desired(example, platform)
        bring(device, platform, intent, want)
        present = kind.read(device.says())
        assert not difference(present, want, kind.owns(intent))
        assert {place: present.get(place) for place in want} == want


@pytest.mark.parametrize(("example", "platform"), PAIRS)
def test_the_reverse_restores_the_very_state(example: str, platform: str) -> None:
    kind, device = PLATFORMS[platform], device_for(platform)
    bring(
        device,
        platform,
        on_every_platform("two_drop_precedences"),
        desired("two_drop_precedences", platform),
    )
    before = kind.read(device.says())
    intent, want = on_every_platform(example), desired(example, platform)
    changes = difference(before, want, kind.owns(intent))
    for step in kind.steps(before, changes):
        device.do(step.payload)
    then = kind.read(device.says())
    back = [change.reverse() for change in changes]
    assert after(then, back) == before
    for step in kind.steps(then, back):
        device.do(step.payload)
    assert kind.read(device.says()) == before


@pytest.mark.parametrize("platform", PLATFORMS)
def test_what_is_removed_leaves_no_object_of_ours(platform: str) -> None:
    kind, device = PLATFORMS[platform], device_for(platform)
    intent = on_every_platform("minimal")
    bring(device, platform, intent, desired("minimal", platform))
    assert intent.prefix in device.says()
    bring(device, platform, intent, {})
    assert intent.prefix not in device.says()
    owns = kind.owns(intent)
    assert not any(owns(place, value) for place, value in kind.read(device.says()).items())


@pytest.mark.parametrize("platform", ["eos", "nxos"])
def test_lines_of_others_are_neither_read_nor_touched(platform: str) -> None:
    device = device_for(platform)
    others = "hostname leaf\ninterface Ethernet1/1\n   description to DLCP rack\n   mtu 9214\n"
    device.do(others)
    intent = on_every_platform("no_ecn")
    bring(device, platform, intent, desired("no_ecn", platform))
    bring(device, platform, intent, {})
    assert device.says().startswith(others)


@pytest.mark.parametrize("platform", ["sonic", "openconfig", "linux"])
@pytest.mark.parametrize(
    "text", ["", "[]", "{", "3", '{"QUEUE": [], "openconfig-qos:qos": []}', "[" * 100_000]
)
def test_a_device_that_answers_nonsense_is_one_error(platform: str, text: str) -> None:
    with pytest.raises(BadState):
        PLATFORMS[platform].read(text)


def test_no_value_can_end_a_line() -> None:
    kind = PLATFORMS["eos"]
    state = {place: f"{value} x\nreload" for place, value in desired("minimal", "eos").items()}
    with pytest.raises(BadState):
        kind.write(state)


def test_junos_is_told_and_asked_in_xml() -> None:
    platform = PLATFORMS["junos"]
    assert isinstance(platform, NetconfPlatform)
    spoken = platform.netconf()
    told = spoken.load(Step("", 'set a "b & c" <d>\n'))
    assert 'set a "b &amp; c" &lt;d&gt;\n' in told
    lines = "<configuration-set>\nset a &quot;b &amp;&quot;\n</configuration-set>"
    reply = f"<rpc-reply>{lines}</rpc-reply>"
    assert spoken.said(reply) == '\nset a "b &"\n'
    assert spoken.said("<rpc-reply/>") == ""


def test_a_device_of_each_platform_is_rendered() -> None:
    found: dict[str, Device] = DEVICES
    assert set(found) == set(PLATFORMS)
