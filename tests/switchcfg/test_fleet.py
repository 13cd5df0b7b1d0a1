"""Many devices: which are meant, and what became of each."""

import json
from pathlib import Path

import pytest

from switchcfg.cli.main import CHANGES, FAILED, SAME
from tests.switchcfg.test_on_devices import Lab, lab

__all__ = ["lab"]  # the fixture


def rows(text: str) -> list[list[str]]:
    """The table at the end of what was said."""
    lines = text[text.rindex("device  ") :].splitlines()
    return [line.split(maxsplit=2) for line in lines if line.startswith(("sw", "device"))]


def test_plans_are_applied_to_those_that_are_meant(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.planned()
    assert lab.run("apply", "INTENT", "PLANS", "--skip", "sw") == SAME
    assert lab.drivers["sw"].calls.count("commit") == 0
    assert lab.run("verify", "INTENT", "--only", "sw?,sw2") == SAME
    capsys.readouterr()
    for words, says in (
        (("--only", "sw9"), "the intent has no device 'sw9'; did you mean 'sw'?"),
        (("--skip", "sw*"), "--skip excludes every device"),
        (("--only", "sw", "--skip", "sw"), "--skip excludes every device"),
    ):
        assert lab.run("apply", "INTENT", "PLANS", *words) == FAILED
        assert says in capsys.readouterr().err
    (lab.folder / "plans" / "sw.plan.json").unlink()
    assert lab.run("apply", "INTENT", "PLANS", "--only", "sw") == FAILED
    assert "no plan for 'sw' (there are plans for: sw2) [bad_plan]" in capsys.readouterr().err
    assert lab.run("apply", "INTENT", "PLANS", "--skip", "sw2") == FAILED
    assert "exclude every plan (there are plans for: sw2) [bad_plan]" in capsys.readouterr().err
    assert lab.drivers["sw"].calls.count("commit") == 0


@pytest.mark.parametrize("command", ["plan", "verify", "drift", "doctor", "confirm", "rollback"])
def test_every_command_for_many_takes_only_and_skip(lab: Lab, command: str) -> None:
    lab.planned()
    lab.run("apply", "INTENT", "PLANS", *(["--pending"] if command == "confirm" else []))
    before = {name: len(driver.calls) for name, driver in lab.drivers.items()}
    assert lab.run(command, "INTENT", "--only", "sw*", "--skip", "sw2") == SAME
    assert len(lab.drivers["sw"].calls) > before["sw"]
    assert len(lab.drivers["sw2"].calls) == before["sw2"]


def test_rollback_of_all_has_to_be_said(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert lab.run("rollback", "INTENT") == FAILED
    assert "--only" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["plan", "verify", "drift"])
def test_a_device_that_does_not_answer_hides_no_other(
    lab: Lab, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    lab.planned()
    lab.run("apply", "INTENT", "PLANS")
    lab.drivers["sw2"].device.fifos["p1", "17"] = "4242"
    lab.drivers["sw"].silent = "get"
    capsys.readouterr()
    assert lab.run(command, "INTENT") == FAILED
    out, err = capsys.readouterr()
    assert "p1|17" in out
    assert err == "switchcfg: sw: no answer [unreachable]\n"
    assert rows(out)[1:] == [["sw", "linux", "failed: unreachable"], ["sw2", "linux", "1 change"]]
    assert lab.run(command, "INTENT", "--json") == FAILED
    document = json.loads(capsys.readouterr().out)
    assert document["failed"] == {"sw": {"code": "unreachable", "message": "no answer"}}
    assert [each["device"] for each in document["plans"]] == ["sw2"]
    assert document["devices"]["sw2"]["status"] == "1 change"


def test_apply_ends_with_what_became_of_each(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.planned()
    lab.drivers["sw"].refuses = "set rules"
    assert lab.run("apply", "INTENT", "PLANS") == FAILED
    assert rows(capsys.readouterr().err)[1:] == [
        ["sw", "linux", "failed: commit_failed"],
        ["sw2", "linux", "not started"],
    ]
    lab.drivers["sw"].refuses = ""
    assert lab.run("apply", "INTENT", "PLANS", "--pending", "--only", "sw") == SAME
    capsys.readouterr()
    lab.run("plan", "INTENT", "--out", "PLANS")
    assert lab.run("doctor", "INTENT") == FAILED
    assert rows(capsys.readouterr().err)[1:] == [
        ["sw", "linux", "1 complaint"],
        ["sw2", "linux", "ready"],
    ]
    assert lab.run("confirm", "INTENT", "--json") == FAILED
    document = json.loads(capsys.readouterr().out)
    assert document["devices"]["sw"]["status"] == "confirmed"
    assert document["devices"]["sw2"]["status"] == "failed: nothing_pending"


def test_one_device_has_no_table(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert lab.run("plan", "INTENT", "--only", "sw") == CHANGES
    assert "platform" not in capsys.readouterr().out


def test_a_rollback_goes_on_no_further_than_its_first_failure(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.planned()
    lab.run("apply", "INTENT", "PLANS")
    lab.drivers["sw"].silent = "commit"
    capsys.readouterr()
    assert lab.run("rollback", "INTENT", "--only", "sw*") == FAILED
    assert rows(capsys.readouterr().err)[1:] == [
        ["sw", "linux", "failed: unreachable"],
        ["sw2", "linux", "not started"],
    ]
    assert lab.run("verify", "INTENT", "--only", "sw2") == SAME


def test_a_plan_of_no_device_of_the_intent_is_refused(lab: Lab, tmp_path: Path) -> None:
    lab.planned()
    text = (tmp_path / "intent.toml").read_text()
    (tmp_path / "intent.toml").write_text(text.replace('"sw2"', '"sw3"'))
    assert lab.run("apply", "INTENT", "PLANS") == FAILED
    assert not any("commit" in driver.calls for driver in lab.drivers.values())
