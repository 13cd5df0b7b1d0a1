"""`switchcfg fabric`, and `apply` over a small fabric of simulated switches."""

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from switchcfg.cli import neighbours, on_devices
from switchcfg.cli.main import CHANGES, FAILED, SAME, main
from switchcfg.drivers.driver import Commit
from switchcfg.intent.intent import Device
from tests.switchcfg.linux_device import LinuxDevice
from tests.switchcfg.simulated import SimulatedDriver

INTERRUPTED = 130
PORTS = {
    name: ("p1", "p2", "p3")[: 3 if name.startswith("leaf") else 2]
    for name in ("leaf1", "leaf2", "spine1", "spine2")
}
# (device, port) at both ends; p3 of a leaf leads to a host.
LINKS = [
    (("leaf1", "p1"), ("spine1", "p1")),
    (("leaf1", "p2"), ("spine2", "p1")),
    (("leaf2", "p1"), ("spine1", "p2")),
    (("leaf2", "p2"), ("spine2", "p2")),
]
DEVICE = """\
[[device]]
name = "{name}"
platform = "linux"
[[device.ports]]
names = {ports}
rate = "20Mbit"
"""
TEXT = 'schema = 1\n[fabric]\nname = "lab"\n' + "".join(
    DEVICE.format(name=name, ports=json.dumps(ports)) for name, ports in PORTS.items()
)


def lldp(name: str) -> str:
    """`lldpctl -f json` of a switch."""
    rows = []
    for ends in LINKS:
        for (here, port), (there, far) in (ends, ends[::-1]):
            if here == name:
                row = {
                    "chassis": {there: {}},
                    "port": {"id": {"value": "52:54:00:00:53:01"}, "descr": far},
                }
                rows.append({port: row})
    return json.dumps({"lldp": {"interface": rows}})


def frr(*peers: str) -> str:
    return json.dumps(
        {"default": {"ipv4Unicast": {"peers": {p: {"state": "Established"} for p in peers}}}}
    )


@dataclass
class Signalled(SimulatedDriver):
    """Notes when it commits; SIGINT arrives while it does so, and while it reads back."""

    name: str = ""
    log: list[str] = field(default_factory=list)
    interrupts: int = 0

    async def commit(self, commit: Commit) -> str | None:
        self.log.append(self.name)
        said = await super().commit(commit)
        if self.interrupts:
            os.kill(os.getpid(), signal.SIGINT)
        return said

    async def get(self) -> str:
        if self.armed and self.interrupts > 1:
            os.kill(os.getpid(), signal.SIGINT)
            self.delay = 0.01
        return await super().get()


@dataclass
class Fabric:
    folder: Path
    log: list[str]
    drivers: dict[str, Signalled]

    def run(self, *words: str) -> int:
        fill = {"INTENT": str(self.folder / "intent.toml"), "PLANS": str(self.folder / "plans")}
        return main([fill.get(word, word) for word in words])

    def planned(self) -> None:
        assert self.run("plan", "INTENT", "--out", "PLANS") == CHANGES


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fabric]:
    (tmp_path / "intent.toml").write_text(TEXT)
    log: list[str] = []
    drivers = {
        name: Signalled(
            LinuxDevice(ports),
            name=name,
            log=log,
            tells={
                "lldp": [lldp(name)],
                "vtysh": [frr("p1", "p2")],
                "ip -j link": [json.dumps([{"ifname": port, "mtu": 9100} for port in ports])],
            },
        )
        for name, ports in PORTS.items()
    }

    def driver(_intent: object, device: Device, **_options: object) -> SimulatedDriver:
        return drivers[device.name]

    monkeypatch.setattr(on_devices, "driver_for", driver)
    monkeypatch.setattr(neighbours, "POLL", 0.01)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield Fabric(tmp_path, log, drivers)
    assert all(each.calls[-1] == "close" for each in drivers.values() if each.calls)


def test_links_differences_and_the_order_are_shown(
    lab: Fabric, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lab.run("fabric", "INTENT") == SAME
    assert capsys.readouterr().out.splitlines()[:8] == [
        "leaf1 p1 - spine1 p1 (LLDP on leaf1, LLDP on spine1)",
        "leaf1 p2 - spine2 p1 (LLDP on leaf1, LLDP on spine2)",
        "leaf2 p1 - spine1 p2 (LLDP on leaf2, LLDP on spine1)",
        "leaf2 p2 - spine2 p2 (LLDP on leaf2, LLDP on spine2)",
        "leaf1 p3 - without a neighbour",
        "leaf2 p3 - without a neighbour",
        "4 links are equal at both ends",
        "order: leaf1; then leaf2; then spine1; then spine2",
    ]


def test_what_differs_is_exit_code_2_and_a_warning_of_plan(
    lab: Fabric, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.drivers["spine1"].tells["ip -j link"] = [json.dumps([{"ifname": "p1", "mtu": 1500}])]
    says = "leaf1 p1 - spine1 p1: MTU: bytes 9100 on leaf1, 1500 on spine1"
    assert lab.run("fabric", "INTENT") == CHANGES
    assert f"differs: {says}\n" in capsys.readouterr().out
    lab.planned()
    assert f"fabric: differs: {says}\n" in capsys.readouterr().out
    assert lab.run("plan", "INTENT", "--only", "leaf1") == CHANGES
    assert "fabric:" not in capsys.readouterr().out  # one device has no other end
    assert lab.run("plan", "INTENT", "--only", "leaf1,spine1", "--json") == CHANGES
    [row] = json.loads(capsys.readouterr().out)["fabric"]["differences"]
    assert (row["subject"], row["values"]) == ("MTU", ["9100", "1500"])


def test_a_plan_is_judged_with_all_plans_applied(
    lab: Fabric, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.planned()
    assert "fabric:" not in capsys.readouterr().out
    assert lab.run("apply", "INTENT", "PLANS", "--only", "leaf1,spine1,leaf2") == SAME
    assert lab.run("fabric", "INTENT") == CHANGES  # of spine2 nothing is configured yet
    out = capsys.readouterr().out
    assert "differs: leaf1 p2 - spine2 p1: trust: packets are classified by DSCP on leaf1" in out
    assert lab.run("plan", "INTENT") == CHANGES
    assert "fabric:" not in capsys.readouterr().out


def test_all_is_told_in_json(lab: Fabric, capsys: pytest.CaptureFixture[str]) -> None:
    lab.drivers["leaf2"].tells.pop("lldp")
    assert lab.run("fabric", "INTENT", "--json") == SAME
    found = json.loads(capsys.readouterr().out)
    assert len(found["links"]) == found["judged"] == 4
    assert found["links"][2]["by"] == ["LLDP on spine1"]
    assert found["order"] == [["leaf1"], ["leaf2"], ["spine1"], ["spine2"]]
    assert found["unknown"] == ["leaf2: LLDP: no such command: lldpctl -f json"]
    assert found["devices"]["leaf1"] == {"platform": "linux", "status": "done"}


def test_links_that_contradict_each_other_are_named_and_nothing_is_applied(
    lab: Fabric, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.planned()
    link = '[[link]]\nends = ["leaf1 p1", "spine2 p2"]\n'
    (lab.folder / "intent.toml").write_text(TEXT + link)
    says = (
        "leaf1 p1: is linked to spine1 p1 by LLDP on leaf1, LLDP on spine1; and to spine2 p2 by "
        "the intent"
    )
    assert lab.run("fabric", "INTENT") == FAILED
    assert f"contradiction: {says}\n" in capsys.readouterr().out
    assert lab.run("apply", "INTENT", "PLANS") == FAILED
    err = capsys.readouterr().err
    assert says in err and err.endswith("[refused]\n")
    assert not lab.log


def test_links_of_the_intent_are_enough_for_saved_configurations(
    lab: Fabric, capsys: pytest.CaptureFixture[str]
) -> None:
    (lab.folder / "now").mkdir()
    for name, driver in lab.drivers.items():
        (lab.folder / "now" / f"{name}.txt").write_text(driver.device.says())
    rows = (f'[[link]]\nends = ["{" ".join(a)}", "{" ".join(b)}"]\n' for a, b in LINKS)
    (lab.folder / "intent.toml").write_text(TEXT + "".join(rows))
    now = str(lab.folder / "now")
    assert lab.run("fabric", "INTENT", "--present", now) == SAME
    out = capsys.readouterr().out
    assert "leaf2 p2 - spine2 p2 (the intent)\n" in out
    assert not any(driver.calls for driver in lab.drivers.values())
    (lab.folder / "now" / "leaf1.txt").unlink()
    assert lab.run("fabric", "INTENT", "--present", now) == FAILED
    assert "contains 0 files leaf1.*" in capsys.readouterr().err


def test_spines_are_changed_one_after_the_other_whatever_the_file_says(
    lab: Fabric, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = [DEVICE.format(name=n, ports=json.dumps(PORTS[n])) for n in sorted(PORTS, reverse=True)]
    (lab.folder / "intent.toml").write_text('schema = 1\n[fabric]\nname = "lab"\n' + "".join(parts))
    lab.planned()
    assert lab.run("apply", "INTENT", "PLANS", "--only", "leaf*,spine1") == SAME
    err = capsys.readouterr().err
    assert "order: leaf1; then leaf2; then spine1\n" in err
    assert lab.log == ["leaf1", "leaf2", "spine1"]
    assert "spine1: has its 4 neighbours of before\n" in err
    lab.planned()
    assert lab.run("apply", "INTENT", "PLANS") == SAME
    assert "order:" not in capsys.readouterr().err  # one device


@pytest.mark.parametrize("kind", ["lldp", "vtysh"])
def test_a_device_whose_neighbours_stay_away_is_reverted_and_ends_it(
    lab: Fabric, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    lab.planned()
    before = lab.drivers["leaf2"].device.says()
    tells = lab.drivers["leaf2"].tells
    # The first answers are for the order, and before the change.
    tells[kind] = [*tells[kind] * 2, {"lldp": '{"lldp": {}}', "vtysh": frr("p1")}[kind]]
    assert lab.run("apply", "INTENT", "PLANS", "--revert-after", "16") == FAILED
    err = capsys.readouterr().err
    gone = {
        "lldp": "2 of 4 neighbours did not come back: LLDP p1 (spine1), LLDP p2 (spine2)",
        "vtysh": "1 of 4 neighbours did not come back: BGP p2",
    }[kind]
    assert f"leaf2: {gone} [commit_failed]" in err
    assert "leaf2: reverted\n" in err and "not started: spine1, spine2" in err
    assert lab.drivers["leaf2"].device.says() == before
    assert lab.log == ["leaf1", "leaf2"]


def test_it_waits_until_neighbours_are_back(
    lab: Fabric, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.planned()
    tells = lab.drivers["leaf1"].tells
    full = tells["lldp"][0]
    tells["lldp"] = [full, full, '{"lldp": {}}', "nonsense", full]
    assert lab.run("apply", "INTENT", "PLANS", "--only", "leaf1,leaf2") == SAME
    assert "leaf1: has its 4 neighbours of before\n" in capsys.readouterr().err
    assert tells["lldp"] == [full]


def test_it_does_not_wait_where_that_is_asked_for(lab: Fabric) -> None:
    lab.planned()
    tells = lab.drivers["leaf1"].tells
    tells["lldp"] = [*tells["lldp"], '{"lldp": {}}']
    assert lab.run("apply", "INTENT", "PLANS", "--no-wait") == SAME
    assert lab.run("rollback", "INTENT", "--only", "leaf1,spine1", "--no-wait") == SAME
    assert lab.log == ["leaf1", "leaf2", "spine1", "spine2", "leaf1", "spine1"]


def test_an_interrupt_finishes_what_has_begun_and_begins_no_more(
    lab: Fabric, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.planned()
    lab.drivers["leaf2"].interrupts = 1
    capsys.readouterr()
    assert lab.run("apply", "INTENT", "PLANS", "--json") == INTERRUPTED
    out, err = capsys.readouterr()
    found: dict[str, Any] = json.loads(out)
    assert (found["done"], found["failed"]) == (["leaf1", "leaf2"], {})
    assert (found["not_begun"], found["interrupted"]) == (["spine1", "spine2"], True)
    assert "interrupted: finishing the devices that have begun; a second interrupt" in err
    assert "not started: spine1, spine2" in err and "2 done, 0 failed, 2 not started" in err
    assert not any(driver.armed for driver in lab.drivers.values())
    assert lab.run("verify", "INTENT", "--only", "leaf*") == SAME


def test_a_second_interrupt_reverts_what_has_begun(
    lab: Fabric, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.planned()
    driver = lab.drivers["leaf2"]
    before, driver.interrupts = driver.device.says(), 2
    capsys.readouterr()
    assert lab.run("apply", "INTENT", "PLANS", "--json") == INTERRUPTED
    found = json.loads(capsys.readouterr().out)
    assert found["done"] == ["leaf1"] and found["not_begun"] == ["spine1", "spine2"]
    assert found["failed"]["leaf2"]["code"] == "interrupted"
    assert driver.armed is None and driver.device.says() == before


def test_an_interrupt_during_the_last_device_is_no_error(lab: Fabric) -> None:
    lab.planned()
    lab.drivers["spine2"].interrupts = 1
    assert lab.run("apply", "INTENT", "PLANS") == SAME
