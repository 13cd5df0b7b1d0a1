"""The commands that talk to devices, with simulated ones behind them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from switchcfg.cli import on_devices
from switchcfg.cli.main import CHANGES, FAILED, SAME, main
from switchcfg.drivers import known
from switchcfg.errors import Unreachable
from switchcfg.intent.intent import Device
from switchcfg.intent.known import KNOWN
from tests.switchcfg.intents import WHOLE
from tests.switchcfg.simulated import SimulatedDriver
from tests.switchcfg.test_linux import TEXT

SECOND = """
[[device]]
name = "sw2"
platform = "linux"
[[device.ports]]
names = ["p1", "p2"]
rate = "20Mbit"
"""


@dataclass
class Lab:
    """Two switches, and what an operator has on disk."""

    folder: Path
    drivers: dict[str, SimulatedDriver] = field(
        default_factory=lambda: {name: SimulatedDriver() for name in ("sw", "sw2")}
    )

    def run(self, *words: str) -> int:
        fill = {"INTENT": str(self.folder / "intent.toml"), "PLANS": str(self.folder / "plans")}
        return main([fill.get(word, word) for word in words])

    def planned(self) -> None:
        assert self.run("plan", "INTENT", "--out", "PLANS") == CHANGES


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    (tmp_path / "intent.toml").write_text(TEXT + SECOND)
    made = Lab(tmp_path)

    def driver(_intent: object, device: Device, **_options: object) -> SimulatedDriver:
        return made.drivers[device.name]

    monkeypatch.setattr(on_devices, "driver_for", driver)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield made
    assert all(d.calls[-1] == "close" for d in made.drivers.values() if d.calls)


def test_plan_apply_and_then_nothing(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert lab.run("verify", "INTENT") == CHANGES
    lab.planned()
    assert lab.run("apply", "INTENT", "PLANS") == SAME
    assert "2 done, 0 failed, 0 not started" in capsys.readouterr().err
    for command in ("verify", "drift", "plan"):
        assert lab.run(command, "INTENT") == SAME
    lab.run("plan", "INTENT", "--out", "PLANS")
    assert lab.run("apply", "INTENT", "PLANS") == SAME
    assert "sw2: nothing to do" in capsys.readouterr().err


def test_a_failure_stops_the_rest_and_is_named(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.planned()
    lab.drivers["sw"].refuses = "set rules"
    assert lab.run("apply", "INTENT", "PLANS") == FAILED
    err = capsys.readouterr().err
    assert "refused: set rules [commit_failed]" in err
    assert "not started: sw2" in err
    assert "commit" not in lab.drivers["sw2"].calls


def test_pending_is_confirmed_or_aborted(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.planned()
    assert lab.run("apply", "INTENT", "PLANS", "--pending") == SAME
    assert lab.run("doctor", "INTENT") == FAILED
    assert "a commit is pending" in capsys.readouterr().err
    assert lab.run("confirm", "INTENT", "--device", "sw") == SAME
    assert lab.run("abort", "INTENT", "--device", "sw2") == SAME
    assert lab.run("verify", "INTENT", "--device", "sw") == SAME
    assert lab.run("verify", "INTENT", "--device", "sw2") == CHANGES
    assert lab.run("confirm", "INTENT") == FAILED
    assert capsys.readouterr().err.count("[nothing_pending]") == 2


def test_rollback_takes_back_what_was_applied_and_only_that(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    before = lab.drivers["sw"].device.says()
    lab.planned()
    lab.run("apply", "INTENT", "PLANS")
    assert lab.run("rollback", "INTENT", "--device", "sw") == SAME
    assert lab.drivers["sw"].device.says() == before
    assert lab.run("verify", "INTENT", "--device", "sw2") == SAME
    assert lab.run("rollback", "INTENT", "--device", "sw") == FAILED
    assert "this host has applied no change" in capsys.readouterr().err


def test_drift_names_what_changed_behind_our_back(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.planned()
    lab.run("apply", "INTENT", "PLANS")
    device = lab.drivers["sw2"].device
    device.fifos["p1", "17"] = "4242"
    capsys.readouterr()
    assert lab.run("drift", "INTENT") == CHANGES
    out = capsys.readouterr().out
    assert "p1|17" in out
    assert "4242" in out


def test_the_doctor_says_what_is_wrong_with_each(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lab.run("doctor", "INTENT") == SAME
    told, _, table = capsys.readouterr().err.partition("device")
    assert told == "sw: ready\nsw2: ready\n"
    assert [line.split() for line in table.splitlines()[1:]] == [
        ["sw", "linux", "ready"],
        ["sw2", "linux", "ready"],
    ]
    lab.drivers["sw"].silent = "examine"
    lab.drivers["sw2"].device.ports = ("p1",)
    assert lab.run("doctor", "INTENT") == FAILED
    err = capsys.readouterr().err
    assert "port: the device has no port p2" in err
    assert f"no answer [{Unreachable.code}]" in err


def test_a_plan_of_another_platform_is_refused(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.planned()
    text = (lab.folder / "intent.toml").read_text()
    eos = text.replace('"linux"', '"eos"').replace('"p1", "p2"', '"Ethernet1"')
    (lab.folder / "intent.toml").write_text(eos)
    assert lab.run("apply", "INTENT", "PLANS") == FAILED
    assert (
        "sw: the plan is for platform linux, and the intent says eos: plan again [bad_plan]"
        in capsys.readouterr().err
    )
    assert not any(driver.calls[-2:-1] == ["commit"] for driver in lab.drivers.values())


def test_a_folder_without_plans_is_an_error(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert lab.run("apply", "INTENT", str(lab.folder)) == FAILED
    assert "contains no file *.plan.json [bad_plan]" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["4", "soon", "90000", "-7"])
def test_the_time_to_revert_is_bounded(
    lab: Lab, wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lab.run("apply", "INTENT", "PLANS", f"--revert-after={wrong}") == FAILED
    assert "must be a whole number of seconds from 5 to 86400" in capsys.readouterr().err


def test_a_platform_without_a_driver_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All have one now; a platform begins with none."""
    file = tmp_path / "intent.toml"
    file.write_text(WHOLE)
    monkeypatch.setattr(known, "KNOWN", {"eos": replace(KNOWN["eos"], driver="")})
    assert main(["verify", str(file), "--device", "leaf2"]) == FAILED
    assert "no driver for eos: save the device" in capsys.readouterr().err


def test_all_is_told_in_json_where_that_is_asked_for(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*words: str, code: int) -> Any:
        assert lab.run(*words, "--json") == code
        return json.loads(capsys.readouterr().out)

    assert told("doctor", "INTENT", code=SAME)["complaints"] == {"sw": [], "sw2": []}
    lab.planned()
    lab.drivers["sw2"].refuses = "set rules"
    capsys.readouterr()
    found = told("apply", "INTENT", "PLANS", code=FAILED)
    assert found["done"] == ["sw"]
    assert found["failed"]["sw2"]["code"] == "commit_failed"
    plans = told("verify", "INTENT", code=CHANGES)["plans"]
    assert [bool(each["changes"]) for each in plans] == [False, True]
    assert told("drift", "INTENT", "--device", "sw", code=SAME)["plans"][0]["changes"] == []
    assert told("rollback", "INTENT", "--device", "sw", code=SAME)["done"] == ["sw"]
    assert told("confirm", "INTENT", "--device", "sw", code=FAILED)["failed"]["sw"]["code"]


def test_progress_is_told_where_there_is_more_than_one(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.planned()
    lab.run("apply", "INTENT", "PLANS")
    assert "1 of 2 devices\n" in (err := capsys.readouterr().err)
    assert "2 of 2 devices\n" in err


def test_it_is_saved_where_that_is_asked_for(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.planned()
    assert lab.run("apply", "INTENT", "PLANS", "--pending", "--save") == FAILED
    assert "may still revert" in capsys.readouterr().err
    assert lab.run("apply", "INTENT", "PLANS") == SAME
    assert "save" not in lab.drivers["sw"].calls
    assert lab.run("rollback", "INTENT", "--device", "sw", "--save") == SAME
    assert lab.drivers["sw"].calls[-2:] == ["save", "close"]
    assert "sw: saved" in capsys.readouterr().err


def test_what_cannot_be_written_down_is_not_done(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.planned()
    file = str(lab.folder / "intent.toml")
    assert lab.run("apply", "INTENT", "PLANS", "--records", file) == FAILED
    assert "[not_kept]" in capsys.readouterr().err
    assert "commit" not in lab.drivers["sw"].calls
    assert lab.run("plan", "INTENT", "--out", file) == FAILED
    assert "[os_error]" in capsys.readouterr().err


def test_what_was_confirmed_later_can_be_rolled_back(lab: Lab) -> None:
    before = lab.drivers["sw"].device.says()
    lab.planned()
    lab.run("apply", "INTENT", "PLANS", "--pending")
    assert lab.run("drift", "INTENT", "--device", "sw") == FAILED  # it may yet revert
    assert lab.run("confirm", "INTENT", "--device", "sw") == SAME
    assert lab.run("drift", "INTENT", "--device", "sw") == SAME
    assert lab.run("rollback", "INTENT", "--device", "sw") == SAME
    assert lab.drivers["sw"].device.says() == before
    assert lab.run("abort", "INTENT", "--device", "sw2") == SAME
    assert lab.run("drift", "INTENT", "--device", "sw2") == FAILED


def test_a_removal_gives_back_what_the_records_say(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    """A setting of the whole switch has no name: only the record has its value before."""
    device = lab.drivers["sw"].device
    was = dict(device.settings)
    lab.planned()
    assert lab.run("apply", "INTENT", "PLANS") == SAME
    assert device.settings != was
    elsewhere = ("--records", str(lab.folder / "elsewhere"))
    assert lab.run("plan", "INTENT", "--remove", "--only", "sw", *elsewhere) == CHANGES
    said = capsys.readouterr()
    assert "fib_multipath_hash_policy = 1" in said.out
    assert "degraded: values that an apply replaced do not come back: this host has no" in said.out
    assert lab.run("plan", "INTENT", "--remove", "--only", "sw", "--out", "PLANS") == CHANGES
    assert "do not come back" not in capsys.readouterr().out
    assert lab.run("apply", "INTENT", "PLANS", "--only", "sw") == SAME
    assert device.settings == was
    assert not device.roots and not device.tables
