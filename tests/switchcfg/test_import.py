"""An intent out of what a device has today."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from switchcfg.cli.main import CHANGES, FAILED, SAME, main
from switchcfg.intent.classes import shared_classes
from switchcfg.intent.intent import parse
from switchcfg.platforms.known import PLATFORMS
from tests.switchcfg.accounted import PORTS
from tests.switchcfg.foreign_devices import DEVICES
from tests.switchcfg.intents import NAME
from tests.switchcfg.stock import sonic_roce, sonic_text
from tests.switchcfg.test_kept import ROCE
from tests.switchcfg.test_on_devices import Lab, lab
from tests.switchcfg.test_output import NASTY, assert_harmless

__all__ = ["lab"]  # the fixture
SONIC = ["Ethernet0", "Ethernet4", "Ethernet8"]
CAPTURED = [  # whole configurations; answers of lldpd are there, too
    file
    for file in sorted(Path(__file__).with_name("captured").iterdir())
    if re.split(r"[._]", file.name)[0] in PLATFORMS
]


@pytest.fixture
def said(tmp_path: Path) -> Path:
    return tmp_path / "leaf.said"


def imported(
    capsys: pytest.CaptureFixture[str], platform: str, said: Path, *more: str
) -> tuple[str, str]:
    """The intent, and its comments in one line."""
    capsys.readouterr()
    words = ["import", "leaf", "--platform", platform, "--present", str(said), *more]
    assert main(words) == SAME
    text = capsys.readouterr().out
    lines = [line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#")]
    return text, " ".join(lines)


def test_a_switch_from_the_factory_is_adopted_and_nothing_of_its_roce_is_lost(
    said: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said.write_text(sonic_text(sonic_roce(SONIC)))
    text, notes = imported(capsys, "sonic", said, "--address", "192.0.2.1")
    found = parse(text, NAME)
    assert found.keep.queues == (3, 4)
    assert found.keep.dscp == {3: 3, 4: 4}
    [device] = found.devices
    assert (device.address, device.ports) == ("192.0.2.1", tuple(SONIC))
    assert "`switchcfg plan` accepts this intent: " in notes
    assert "WRED_PROFILE AZURE_LOSSLESS" in notes
    said.with_name("intent.toml").write_text(text)
    plan = ["plan", str(said.with_name("intent.toml")), "--present", str(said)]
    assert main(plan) == CHANGES
    out = capsys.readouterr().out
    assert not [line for line in out.splitlines() if "|3" in line and "BUFFER_QUEUE" not in line]
    assert "pfc_enable" not in out


def test_ports_of_several_speeds_are_groups_with_their_rates(
    said: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = sonic_roce(SONIC)
    tables["PORT"]["Ethernet4"]["speed"] = "400000"
    said.write_text(sonic_text(tables))
    text, _ = imported(capsys, "sonic", said)
    groups = parse(text, NAME).devices[0].groups
    assert [(each.name, each.rate // 10**9, each.ports) for each in groups] == [
        ("", 100, ("Ethernet0", "Ethernet8")),
        ("G1", 400, ("Ethernet4",)),
    ]
    assert "a guess" not in text


@pytest.mark.parametrize("platform", ROCE)
def test_profiles_of_others_are_named_and_kept(
    platform: str, said: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The operator decides which of them are replaced, with their flow control."""
    said.write_text(ROCE[platform])
    text, notes = imported(capsys, platform, said)
    assert parse(text, NAME).keep.replaces == ()
    [suggested] = [line for line in text.splitlines() if line.startswith("# replaces = ")]
    assert all(name.startswith("ROCE") for name in tomllib.loads(suggested[2:])["replaces"])
    assert parse(text, NAME).keep.ports
    assert "stay as they are, because `switchcfg plan` would refuse:" in notes
    assert "in [keep] replaces" in notes
    assert "`switchcfg plan` accepts this intent: " in notes


def test_eos_keeps_its_lossless_queue_and_its_code_points(
    said: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said.write_text(ROCE["eos"])
    text, _ = imported(capsys, "eos", said)
    assert parse(text, NAME).keep.queues == (3,)
    said.write_text(ROCE["eos"].replace("dscp 26", "dscp 24"))
    text, _ = imported(capsys, "eos", said)
    # By default EOS sends 24 to 31 there; 26, 28 and 30 are dlcpd's.
    assert parse(text, NAME).keep.dscp == dict.fromkeys((24, 25, 27, 29, 31), 3)


def test_a_class_whose_code_point_is_kept_gets_another(
    said: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said.write_text(DEVICES["eos", "PFC"].replace("24 25", "24 26"))
    text, _ = imported(capsys, "eos", said)
    found = parse(text, NAME)
    [middle] = [each for each in found.classes if each.name == "middle"]
    assert not {26, 28, 30, *found.keep.dscp} & {*middle.dscp}  # by default, queue 3 has 28 and 30
    assert [each.dscp for each in found.classes if each is not middle] == [
        each.dscp for each in shared_classes() if each.name != "middle"
    ]
    assert "with other code points where a kept queue has those" in text


ALL = {
    **{" ".join(key): (key[0], text) for key, text in DEVICES.items()},
    **{f"{platform} guide": (platform, text) for platform, text in ROCE.items()},
    **{file.name: (file.name.split(".")[0].split("_")[0], file.read_text()) for file in CAPTURED},
    "eos refused line": ("eos", "qos rewrite dscp\ninterface Ethernet1\n"),
    "sonic priority 0": (
        "sonic",
        sonic_text({**(stock := sonic_roce(SONIC)), "PORT_QOS_MAP": {
            port: {**row, "pfc_enable": "0,3"} for port, row in stock["PORT_QOS_MAP"].items()
        }}),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_an_import_is_planned_by_itself_without_a_refusal(
    name: str, said: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    platform, text = ALL[name]
    if platform == "linux":
        pytest.skip("a Linux switch is asked over SSH")
    said.write_text(text)
    more = ["--ports", ",".join(PORTS[platform])] if "empty" in name or "mode" in name else []
    document, notes = imported(capsys, platform, said, *more)
    assert "`switchcfg plan` accepts this intent: " in notes
    file = said.with_name("intent.toml")
    file.write_text(document)
    assert main(["plan", str(file), "--present", str(said)]) in (SAME, CHANGES)
    out, err = capsys.readouterr()
    assert (err, "Plan: " in out or "No changes" in out) == ("", True)


def test_a_switch_whose_ports_have_two_maps_has_two_groups(
    said: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a dual-ToR switch: uplinks send code points 2 and 6 to lossless queues 2 and 6."""
    tables = sonic_roce(SONIC)
    uplink = tables["DSCP_TO_TC_MAP"]["AZURE"] | {"2": "2", "6": "6"}
    tables["DSCP_TO_TC_MAP"]["AZURE_UPLINK"] = uplink
    tables["PORT_QOS_MAP"]["Ethernet8"] |= {
        "dscp_to_tc_map": "AZURE_UPLINK",
        "pfc_enable": "2,3,4,6",
    }
    groups = tables["TC_TO_PRIORITY_GROUP_MAP"]
    groups["UPLINK"] = groups["AZURE"] | {"2": "2", "6": "6"}
    tables["PORT_QOS_MAP"]["Ethernet8"]["tc_to_pg_map"] = "UPLINK"
    tables["BUFFER_PG"] |= {
        f"Ethernet8|{number}": {"profile": "pg_lossless_100000_40m_profile"} for number in (2, 6)
    }
    said.write_text(sonic_text(tables))
    text, notes = imported(capsys, "sonic", said)
    found = parse(text, NAME)
    assert found.keep.queues == (2, 3, 4, 6)
    assert found.keep.dscp == {3: 3, 4: 4, 5: 2}
    assert [each.ports for each in found.devices[0].groups] == [(*SONIC[:2],), (*SONIC[2:],)]
    assert found.keep.ports == ()
    assert "`switchcfg plan` accepts this intent: " in notes


def test_many_lines_of_one_kind_are_one(said: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ports = [f"Ethernet{number}" for number in range(0, 128, 4)]
    said.write_text(
        "".join(f"interface {port}\n   service-profile ROCE\n" for port in ports)
        + "qos profile ROCE\n   priority-flow-control priority 3 no-drop\n"
    )
    text, notes = imported(capsys, "eos", said)
    assert notes.count("kept: Ethernet[0-124/4] has 'ROCE'") == 1
    assert "interface profile Ethernet[0-124/4]" in notes
    assert len(text.splitlines()) < 60


def test_lines_that_are_not_understood_are_listed(
    said: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said.write_text(
        "qos rewrite dscp\ninterface Ethernet1\n   shape rate 9\nqos profile X\n   foo bar\n"
    )
    _, notes = imported(capsys, "eos", said)
    assert 'unread: the switch: "qos rewrite dscp": rewrites code points' in notes
    assert 'unread: Ethernet1: "shape rate 9": ' in notes
    assert 'unread: qos profile X: "foo bar": not understood' in notes


@pytest.mark.parametrize(
    ("platform", "text", "found"),
    [
        ("junos", "set interfaces et-0/0/0 mtu 9216\nset interfaces et-0/0/1 unit 0 family inet\n"
         "set interfaces lo0 unit 0 family inet\nset interfaces et-0/0/2 ether-options 802.3ad "
         "ae0\nset interfaces ae0 mtu 9216\n", (["ae0", "et-0/0/[0-1]"], "channel: et-0/0/2")),
        ("junos", "set chassis fpc 0 pic 0 port 0 number-of-sub-ports 2\nset interfaces et-0/0/0 "
         "speed 100g\nset interfaces et-0/0/0:0 mtu 9216\nset interfaces et-0/0/0:1 mtu 9216\n",
         (["et-0/0/0:[0-1]"], "")),
        ("nvue", "nv set interface swp1-3,7 link mtu 9216\nnv set interface bond1 bond member "
         "swp7\nnv set interface eth0 ip vrf mgmt\nnv set interface swp3 link breakout 2x\n"
         "nv set interface swp3s0-1 link mtu 9216\n", (["swp[1-2]", "swp3s[0-1]", "swp7"], "")),
        ("nvue", "nv set interface swp1 link mtu 9216\nnv set system message pre-login '##\n"
         "# qos\nnv set interface swp9 qos remark profile X\n##'\n", (["swp1"], "")),
        ("eos", "hostname leaf\ninterface Port-Channel5\ninterface Ethernet1\ninterface Ethernet2\n"
         "   channel-group 5 mode active\n",
         (["Ethernet1", "Port-Channel5"], "channel: Ethernet2")),
        ("nxos", "hostname leaf\ninterface port-channel5\ninterface Ethernet1/1\n"
         "interface Ethernet1/2\n  channel-group 5 mode active\n",
         (["Ethernet1/1", "port-channel5"], "channel: Ethernet1/2")),
    ],
)  # fmt: skip
def test_a_switch_without_qos_has_all_its_ports(
    said: Path,
    capsys: pytest.CaptureFixture[str],
    platform: str,
    text: str,
    found: tuple[list[str], str],
) -> None:
    """Members of a port-channel have the queues of the channel, and a split port has none."""
    names, left = found
    said.write_text(text)
    document, notes = imported(capsys, platform, said)
    assert tomllib.loads(document)["device"][0]["ports"][0]["names"] == names
    assert parse(document, NAME).keep.ports == ()
    assert left in notes
    assert ("Members of port-channels" in notes) == bool(left)
    assert "dscp" not in notes  # a default of the switch is no configuration
    file = said.with_name("intent.toml")
    file.write_text(document)
    assert main(["plan", str(file), "--present", str(said)]) == CHANGES


def test_without_flow_control_it_says_that_it_saw_none(
    said: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said.write_text(ROCE["nxos"])
    _, notes = imported(capsys, "nxos", said)
    assert "has no queue with flow control (PFC). If the device has such a queue" in notes
    said.write_text("interface Ethernet1/1\ninterface Ethernet2/1\n")
    text, notes = imported(capsys, "eos", said, "--ports", "Ethernet[1-2]/1", "--rate", "25Gbit")
    assert '\nnames = ["Ethernet[1-2]/1"]\nrate = "25Gbit"\n' in text


def test_junos_ports_have_the_rate_of_their_names(
    said: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said.write_text(ROCE["junos"])
    text, _ = imported(capsys, "junos", said, "--ports", "xe-0/0/1")
    assert 'rate = "10Gbit"\n' in text


def test_nothing_of_a_device_gets_out_of_its_comment(
    said: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = sonic_roce(SONIC[:1])
    tables["SCHEDULER"]['x"\n[fabric]\n' + NASTY] = {"type": "DWRR"}
    said.write_text(sonic_text(tables))
    text, _ = imported(capsys, "sonic", said)
    assert parse(text, NAME).fabric == "imported"
    assert r"x\"\x0a[fabric]\x0a".replace('\\"', '"') in text
    assert_harmless(text)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["leaf", "--platform", "eos", "--present", "SAID"], "lists no port: name the ports"),
        (["leaf", "--platform", "eos", "--ports", "swp1"], "'swp1' is not a port of eos"),
        (["leaf", "--platform", "eos", "--ports", "Ethernet[1-"], "--ports: 'Ethernet[1-'"),
        (['le"af', "--platform", "eos", "--present", "SAID"], "is not a valid name"),
        (["leaf", "--platform", "ios"], "invalid choice: 'ios'"),
        (["leaf", "--platform", "sonic", "--present", "SAID"], "leaf.said: CONFIG_DB is not JSON"),
        (["leaf", "--platform", "eos", "--present", "absent"], "absent: cannot be read"),
        (["leaf", "--platform", "linux", "--present", "SAID"], "leaf.said: "),
    ],
)
def test_what_cannot_be_imported_is_an_error(
    said: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    said.write_text("hostname leaf\n")
    assert main(["import", *(str(said) if word == "SAID" else word for word in words)]) == FAILED
    out, err = capsys.readouterr()
    assert (out, says in err) == ("", True), err


def test_a_device_is_asked_where_nothing_is_saved(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("import", "sw", "--platform", "linux", "--ports", "p[1-2]", "--rate", "20Mbit")
    assert lab.run(*words, "--json") == SAME
    text = json.loads(capsys.readouterr().out)["intent"]
    assert parse(text, NAME).devices[0].ports == ("p1", "p2")
    assert "switchcfg does not find foreign configuration of ports on this platform" in text
    (lab.folder / "intent.toml").write_text(text)
    assert lab.run("plan", "INTENT", "--out", "PLANS") == CHANGES
    lab.drivers["sw"].silent = "get"
    assert lab.run(*words) == FAILED
    assert "no answer [unreachable]" in capsys.readouterr().err
