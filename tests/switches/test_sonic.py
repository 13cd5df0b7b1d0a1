"""switchcfg and a SONiC-like switch: real SSH, a real Redis, and upstream's surprises."""

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.switches.sonic_switch import SonicSwitch
from tests.switches.ssh_switch import until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(
        not (shutil.which("sshd") and shutil.which("redis-check-rdb")),
        reason="sshd or redis is not installed",
    ),
]
HASH = "SWITCH_HASH|GLOBAL"  # ours in part only: put back by a rollback, not by a removal


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[SonicSwitch]:
    with SonicSwitch(tmp_path).running() as made:
        yield made


def applied(switch: SonicSwitch, *more: str) -> str:
    switch.run("plan", "INTENT", "--out", "PLANS")
    code, said = switch.run("apply", "INTENT", "PLANS", *more)
    assert code == 0, said
    return said


def test_it_is_applied_verified_and_rolled_back(switch: SonicSwitch) -> None:
    before = switch.contents()
    code, said = switch.run("doctor", "INTENT")
    assert (code, said) == (0, f"{switch.name}: ready\n"), said
    code, said = switch.run("plan", "INTENT", "--out", "PLANS")
    assert code == 2, said
    assert "takes up to 9 minutes: 3 steps of 3 minutes\n" in said
    assert "Ethernet[0-4/4] goes down and up\n" in said
    code, said = switch.run("apply", "INTENT", "PLANS", "--save")
    assert code == 0, said
    assert f"{switch.name}: saved\n" in said
    assert "DLCP_STRICT" in (switch.folder / "config_db.json").read_text()
    now = switch.contents()
    assert {key: now[key] for key in before} == before  # what is theirs
    assert set(switch.noted("flaps")) == {"Ethernet0", "Ethernet4"}
    assert switch.noted("syslog") == []
    assert switch.run("verify", "INTENT")[0] == 0
    assert switch.run("drift", "INTENT")[0] == 0
    code, said = switch.run("rollback", "INTENT", "--device", switch.name)
    assert code == 0, said
    assert switch.contents() == before


def test_a_threshold_changes_without_taking_a_port_down(switch: SonicSwitch) -> None:
    applied(switch)
    flaps = switch.noted("flaps")
    intent = switch.folder / "intent.toml"
    intent.write_text(
        intent.read_text().replace("[[device]]", "[queues]\nmark = [0.1, 0.3]\n[[device]]", 1)
    )
    code, said = switch.run("plan", "INTENT", "--out", "PLANS")
    assert code == 2
    assert "disrupts" not in said
    applied(switch)
    assert switch.noted("flaps") == flaps


def test_what_nobody_confirms_reverts_by_itself(switch: SonicSwitch) -> None:
    before = switch.contents()
    applied(switch, "--pending")
    assert switch.contents() != before
    until(lambda: not Path("/run/switchcfg", switch.name).exists(), meanwhile=switch.later)
    assert switch.contents() == before


def test_killed_in_the_middle_it_comes_back(switch: SonicSwitch) -> None:
    before = switch.contents()
    assert switch.run("plan", "INTENT", "--out", "PLANS")[0] == 2
    switch.tool("config", delay=1.0)
    child = switch.start("apply", "INTENT", "PLANS")
    until(lambda: switch.contents() != before)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    until(
        lambda: not Path("/run/switchcfg", switch.name).exists(), seconds=40, meanwhile=switch.later
    )
    assert switch.contents() == before


def test_removed_in_two_phases_nothing_of_ours_is_left(switch: SonicSwitch) -> None:
    before = switch.contents()
    applied(switch)
    assert switch.run("plan", "INTENT", "--remove", "--out", "PLANS")[0] == 2
    code, said = switch.run("apply", "INTENT", "PLANS")
    assert code == 0, said
    after = switch.contents()
    after.pop(HASH)
    assert after == before


LOSSLESS = """
[[lossless]]
name = "roce"
priority = 3
dscp = [24]
share = 50
cable = "40m"
[[device]]"""
BUFFERS: dict[str, dict[str, dict[str, str]]] = {
    "BUFFER_POOL": {
        "egress_lossless_pool": {"mode": "static", "size": "12766208", "type": "egress"},
        "ingress_lossless_pool": {"mode": "dynamic", "size": "12766208", "type": "ingress"},
    },
    "BUFFER_PROFILE": {
        "egress_lossless_profile": {
            "pool": "egress_lossless_pool", "size": "0", "static_th": "12766208",
        },
    },
    "BUFFER_PG": {"Ethernet8|0": {"profile": "egress_lossy_profile"}},
    "CABLE_LENGTH": {"AZURE": {"Ethernet0": "5m", "Ethernet4": "5m", "Ethernet8": "5m"}},
}  # fmt: skip


@pytest.fixture
def roce(switch: SonicSwitch) -> SonicSwitch:
    """A switch without PFC, whose intent has a lossless class."""
    switch.fill(BUFFERS)
    intent = switch.folder / "intent.toml"
    intent.write_text(intent.read_text().replace("[[device]]", LOSSLESS, 1))
    return switch


def test_a_lossless_class_is_made_kept_and_taken_back(roce: SonicSwitch) -> None:
    before = roce.contents()
    applied(roce)
    now = roce.contents()
    assert now["PORT_QOS_MAP|Ethernet0"]["pfc_enable"] == "3"
    assert now["BUFFER_PG|Ethernet0|3"] == {"profile": "pg_lossless_100000_40m_profile"}
    assert "DLCP" not in str(now.get("QUEUE|Ethernet8|0"))
    assert roce.noted("syslog") == []
    # What the switch made of it by itself is no drift, and wants no second plan.
    assert roce.run("verify", "INTENT")[0] == 0
    assert roce.run("drift", "INTENT")[0] == 0
    assert roce.run("plan", "INTENT", "--remove", "--out", "PLANS")[0] == 2
    code, said = roce.run("apply", "INTENT", "PLANS")
    assert code == 0, said
    after = roce.contents()
    after.pop(HASH)
    left = {"BUFFER_PROFILE|pg_lossless_100000_40m_profile"}
    assert {key for key in after if before.get(key) != after[key]} == left
    assert after["CABLE_LENGTH|AZURE"]["Ethernet0"] == "5m"  # the record says so
    assert before.keys() <= after.keys()


def test_a_lossless_class_that_nobody_confirms_leaves_nothing(roce: SonicSwitch) -> None:
    before = roce.contents()
    applied(roce, "--pending")
    assert "BUFFER_PG|Ethernet0|3" in roce.contents()
    until(lambda: not Path("/run/switchcfg", roce.name).exists(), meanwhile=roce.later)
    assert roce.contents() == before


def test_the_target_is_as_particular_as_upstream(switch: SonicSwitch) -> None:
    """Else the tests above would prove nothing."""
    for op, says in (
        ({"op": "add", "path": "/BUFFER_POOL/x", "value": {}}, "BUFFER_POOL table is illegal"),
        ({"op": "remove", "path": "/QUEUE/Ethernet8|0"}, "Empty table QUEUE"),
        ({"op": "add", "path": "/QUEUE/Ethernet4|0", "value": {"scheduler": "x"}}, "refers to x"),
    ):
        file = switch.folder / "patch.json"
        file.write_text(json.dumps([op]))
        said = switch.shell(f"{switch.folder}/bin/config apply-patch {file} 2>&1 || :")
        assert says in said
    file.write_text(json.dumps([{"op": "add", "path": "/SCHEDULER/y", "value": {"priority": "1"}}]))
    switch.shell(f"{switch.folder}/bin/config apply-patch {file}")
    assert "drop it: SCHEDULER|y" in switch.noted("syslog")[0]


def test_a_switch_of_several_asics_is_refused_before_it_is_touched(switch: SonicSwitch) -> None:
    """Each of them is a network namespace there."""
    switch.run("plan", "INTENT", "--out", "PLANS")
    before = switch.contents()
    tool = switch.folder / "bin" / "ip"
    tool.write_text("#!/bin/sh\necho 'asic0 (id: 1)'\necho 'asic1 (id: 2)'\n")
    tool.chmod(0o755)
    for words in (("doctor",), ("plan",), ("apply", "PLANS"), ("diff", "PLANS")):
        code, said = switch.run(words[0], "INTENT", *words[1:])
        assert code == 1
        assert (
            f"{switch.name}: a switch with several ASICs: each ASIC has its own CONFIG_DB" in said
        )
    assert switch.contents() == before
