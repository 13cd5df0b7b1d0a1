"""Devices without ports, and problems of many ports as one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchcfg.cli.accepted import accepted
from switchcfg.errors import BadIntent, Refused
from switchcfg.intent.intent import parse
from switchcfg.intent.port_ranges import expand, folded
from switchcfg.plan.plan import MAX_SHOWN, plan, refused, removal
from switchcfg.platforms.known import PLATFORMS
from tests.switchcfg.accounted import PORTS, wanted
from tests.switchcfg.foreign_devices import DEVICES, intents

LEAF = 'schema = 1\n[fabric]\nname = "lab"\n[[device]]\nname = "leaf"\nplatform = "{}"\n'
NAMES = [f"Ethernet{number}" for number in range(0, 64, 4)]


@pytest.mark.parametrize(("platform", "name"), DEVICES)
def test_a_device_without_ports_is_left_as_it_is(platform: str, name: str) -> None:
    intent = parse(f"{LEAF.format(platform)}ports = []\n", "x")
    kind, leaf = PLATFORMS[platform], intent.device("leaf")
    present = kind.read(DEVICES[platform, name])
    made = plan(intent, leaf, kind, present)
    assert (made.changes, made.steps) == ((), ())
    gone = removal(intent, leaf, kind, present).changes
    assert all(change.place.kind == "SWITCH_HASH" for change in gone)


def test_no_ports_must_be_meant() -> None:
    for text in ("", 'template = "x"\n[template.x]\nside = "A"\n'):
        with pytest.raises(BadIntent, match=r"needs \[\[device.ports\]\].*`ports = \[\]` leaves"):
            parse(LEAF.format("eos") + text, "x")


@pytest.mark.parametrize(("platform", "name"), DEVICES)
def test_any_intent_becomes_one_that_is_accepted(platform: str, name: str) -> None:
    """Its ports are those of the intent: each is planned, or left as it is for a reason."""
    kind = PLATFORMS[platform]
    present = kind.read(DEVICES[platform, name])
    for number, (intent, device) in enumerate(intents(platform)):
        if number % 7 == 0:
            found = accepted(intent, kind, present)
            [then] = found.intent.devices
            assert found.problems == ()
            assert {*then.ports, *found.left} == {*device.ports}
            assert {*found.left} == {*found.intent.keep.ports} - {*intent.keep.ports}
            assert all(found.left.values())


@given(
    st.lists(
        st.tuples(st.sampled_from(NAMES), st.sampled_from(["a: {} has x", "b: {}: y", "c: {} 7"]))
    )
)
def test_folded_lines_name_the_same_ports_with_the_same_words(
    found: list[tuple[str, str]],
) -> None:
    lines = [text.format(port) for port, text in found]
    out = folded(lines, NAMES)
    assert len(out) <= len({*lines})
    said = set()
    for line in out:
        words = line.replace(", ", ",").split(" ")
        for part in words[1].rstrip(":").split(","):
            colon = ":" if words[1].endswith(":") else ""
            said |= {" ".join([words[0], name + colon, *words[2:]]) for name in expand(part)}
    assert said == {*lines}


def test_an_error_lists_few_lines_and_has_all_problems() -> None:
    _, device = wanted("eos")
    ports = [f"Ethernet{number}/1" for number in range(1, 3)]
    problems = [f"kept: {port} has {number}" for number in range(30) for port in ports]
    found = refused(device, problems)
    assert isinstance(found, Refused)
    assert found.problems == tuple(problems)
    assert found.lines[0] == "leaf: refused"
    assert len(found.lines) == MAX_SHOWN + 2
    assert found.lines[-1] == f"  ... and {len(problems) - MAX_SHOWN} more"
    assert PORTS["eos"] == tuple(ports)
