"""Ports: ranges both ways, port-channels of each platform, and rates against speeds."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchcfg.cli.main import SAME, main
from switchcfg.errors import BadIntent, Refused
from switchcfg.intent.intent import Intent, parse
from switchcfg.intent.known import KNOWN
from switchcfg.intent.port_names import in_words
from switchcfg.intent.port_ranges import compact, expand
from switchcfg.plan.plan import plan
from switchcfg.platforms.known import PLATFORMS
from tests.switchcfg.intents import NAME, WHOLE
from tests.switchcfg.stock import sonic_roce, sonic_text


def intent(platform: str, port: str, rate: str = "100Gbit", keep: str = "") -> Intent:
    return parse(
        f'schema = 1\n[fabric]\nname = "lab"\n{keep}[[device]]\nname = "leaf"\n'
        f'platform = "{platform}"\n[[device.ports]]\nnames = ["{port}"]\nrate = "{rate}"\n',
        NAME,
    )


@pytest.mark.parametrize(
    ("platform", "name", "says"),
    [
        ("eos", "Port-Channel1", "interface Port-Channel1\n   service-profile DLCP\n"),
        ("nxos", "port-channel7", "interface port-channel7\n  service-policy type qos input DLCP"),
        ("junos", "ae0", "set class-of-service interfaces ae0 scheduler-map DLCP\n"),
        ("openconfig", "Port-Channel1", '"interface-id": "Port-Channel1"'),
    ],
)
def test_a_port_channel_is_bound_where_the_platform_has_its_queues(
    platform: str, name: str, says: str
) -> None:
    wanted, kind = intent(platform, name), PLATFORMS[platform]
    state = kind.render(wanted, wanted.devices[0]).state
    assert says in kind.write(state)
    assert state.items() <= kind.read(kind.write(state)).items()
    assert intent(platform, name, "3200Gbit").devices[0].groups[0].rate == 3_200 * 10**9


@pytest.mark.parametrize(
    ("platform", "name", "says"),
    [
        ("sonic", "PortChannel1", "name its member ports, which have queues of their own"),
        ("nvue", "bond1", "name its member ports"),
        ("linux", "bond0", "name its member ports"),
        ("eos", "PortChannel1", "PortChannel1: write Port-Channel1, as the device does"),
        ("nxos", "Port-Channel7", "write port-channel7"),
        ("junos", "bond0", "write ae0"),
    ],
)
def test_a_port_channel_of_another_spelling_or_place_says_what_to_name(
    platform: str, name: str, says: str
) -> None:
    with pytest.raises(BadIntent, match=rf"{NAME}:8: device\[0\].ports\[0\].names: .*{says}"):
        intent(platform, name)


@pytest.mark.parametrize(
    ("platform", "port", "rate", "says"),
    [
        ("junos", "xe-0/0/0", "25Gbit", "xe-0/0/0 has 10Gbit at most, not 25Gbit"),
        ("junos", "ge-0/0/0", "10Gbit", "ge-0/0/0 has 1Gbit at most"),
        ("eos", "Ethernet1", "3200Gbit", "Ethernet1 has 1600Gbit at most, not 3200Gbit"),
        ("eos", "Ethernet1", "1Mbit", "1Mbit is less than any port of a switch has"),
    ],
)
def test_a_rate_that_the_name_of_a_port_rules_out_is_refused(
    platform: str, port: str, rate: str, says: str
) -> None:
    with pytest.raises(BadIntent, match=rf"{NAME}:9: device\[0\].ports\[0\].rate: .*{says}"):
        intent(platform, port, rate)


@pytest.mark.parametrize(
    ("platform", "port", "rate"),
    [("junos", "xe-0/0/0", "10Gbit"), ("junos", "et-0/0/0", "400Gbit"), ("linux", "p1", "1Mbit")],
)
def test_a_rate_that_a_port_may_have_is_taken(platform: str, port: str, rate: str) -> None:
    assert in_words(intent(platform, port, rate).devices[0].groups[0].rate) == rate


def test_a_rate_above_what_the_device_tells_of_its_port_is_refused_by_name() -> None:
    sonic, keep = PLATFORMS["sonic"], "[keep]\nqueues = [3, 4]\n"
    present = sonic.read(sonic_text(sonic_roce(["Ethernet0"])))
    for rate in ("100Gbit", "25Gbit"):  # less is a port that is shaped, or counted so
        wanted = intent("sonic", "Ethernet0", rate, keep)
        assert plan(wanted, wanted.devices[0], sonic, present).changes
    wanted = intent("sonic", "Ethernet0", "400Gbit", keep)
    with pytest.raises(Refused, match="rate: Ethernet0 has 100Gbit, not 400Gbit"):
        plan(wanted, wanted.devices[0], sonic, present)


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["Ethernet0", "Ethernet4", "Ethernet8"], ["Ethernet[0-8/4]"]),
        (["Ethernet1/1", "Ethernet2/1"], ["Ethernet[1-2]/1"]),
        (["swp1", "swp2", "swp3", "swp7"], ["swp[1-3]", "swp7"]),
        (["eth09", "eth10"], ["eth09", "eth10"]),
        (["swp1s0", "swp1s1"], ["swp1s[0-1]"]),
        (["mgmt", "mgmt"], ["mgmt", "mgmt"]),
    ],
)
def test_names_become_ranges(names: list[str], short: list[str]) -> None:
    assert compact(names) == short


@given(st.sampled_from(sorted(KNOWN)), st.data())
def test_ranges_are_the_names_again(platform: str, data: st.DataObject) -> None:
    name = st.from_regex(KNOWN[platform].ports.pattern, fullmatch=True)
    names = data.draw(st.lists(name, max_size=6))
    names = [each for each in names if each.isascii()]
    first, step = data.draw(st.integers(0, 40)), data.draw(st.integers(1, 9))
    names += [f"Ethernet{first + step * index}" for index in range(data.draw(st.integers(0, 5)))]
    assert [each for text in compact(names) for each in expand(text)] == names


def test_each_port_is_told_with_its_profile_queues_and_thresholds(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / NAME
    file.write_text(WHOLE)
    assert main(["ports", str(file)]) == SAME
    said = capsys.readouterr().out
    rows = [" ".join(line.split()) for line in said.splitlines()]
    assert "leaf1 (sonic):" in rows
    assert "Ethernet[0-8/4], Ethernet40: DLCP, 100Gbit, buffer 512KiB" in rows
    assert "Ethernet60: DLCP_UP, 400Gbit, buffer 1MiB" in rows
    # What is not ECT is dropped where a queue with one curve marks.
    assert "6 front 34,38 209715 41943-104857 38: 41943-104857" in rows
    assert "5 back 10,14, and all others 104857 20971-52428 14: 20971-52428" in rows
    # EOS drops by colour, at thresholds of the intent's own.
    assert (
        "6 front 34,38 209715 41943-104857 38: 41943-104857" in rows[rows.index("leaf2 (eos):") :]
    )
    assert "7 control 48 174762 34952-87381 when full" in rows
    assert rows.count("kept queues: 3, 4") == 2
    assert main(["ports", str(file), "--only", "leaf1", "--json"]) == SAME
    document = json.loads(capsys.readouterr().out)
    port = document["devices"]["leaf1"]["ports"]["Ethernet60"]
    assert (port["profile"], port["rate"], port["rest"]) == ("DLCP_UP", 400 * 10**9, 5)
    assert port["queues"][1]["ecn"] == [83886, 209715]
    assert port["queues"][1]["drops"] == [{"dscp": [38], "begin": 83886, "certain": 209715}]


def test_a_platform_has_the_name_of_its_row_and_a_port_of_its_names() -> None:
    assert {name: kind.name for name, kind in PLATFORMS.items()} == {name: name for name in KNOWN}
    assert all(each.ports.matches(each.ports.example) for each in KNOWN.values())
