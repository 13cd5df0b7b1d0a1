"""Who applied what, when, and what became of it."""

import hashlib
import json
import re
from pathlib import Path

import pytest

from switchcfg.cli import records
from switchcfg.cli.main import FAILED, SAME, main
from switchcfg.cli.workflow import operator
from switchcfg.plan.plan import digest
from tests.switchcfg.test_on_devices import Lab, lab
from tests.switchcfg.test_output import NASTY
from tests.switchcfg.test_records import PLAN, state

__all__ = ["lab"]  # the fixture
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


def rows(lab: Lab, capsys: pytest.CaptureFixture[str], *words: str) -> list[list[str]]:
    capsys.readouterr()
    assert lab.run("history", *words) == SAME
    head, *found = capsys.readouterr().out.splitlines()
    assert head.split() == ["when", "device", "plan", "changes", "who", "state"]
    return [re.split(r"  +", line) for line in found]


def test_it_says_who_did_what_when_by_which_plan_and_what_became_of_it(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.planned()
    lab.run("show", str(lab.folder / "plans" / "sw.plan.json"))
    shown = re.search(r"^plan ([0-9a-f]{8})$", capsys.readouterr().out, re.MULTILINE)
    assert shown
    lab.run("apply", "INTENT", "PLANS", "--only", "sw")
    lab.run("apply", "INTENT", "PLANS", "--only", "sw2", "--pending")
    armed = lab.drivers["sw2"].armed
    assert armed
    first, second = rows(lab, capsys)
    assert re.fullmatch(TIME, first[0])
    assert first[1:3] == ["sw", shown[1]]
    assert re.fullmatch(r"\+\d+ ~1 -0", first[3])
    assert first[4:] == [operator(), "applied"]
    assert (second[1], second[5]) == ("sw2", "pending")
    assert armed.who == f"{operator()}, plan {second[2]}"
    lab.run("confirm", "INTENT", "--only", "sw2")
    lab.run("rollback", "INTENT", "--only", "sw")
    first, second = rows(lab, capsys)
    assert re.fullmatch(rf"rolled back by {re.escape(operator())} {TIME}", first[5])
    assert second[5] == "applied"
    assert rows(lab, capsys, "sw2") == [second]
    assert rows(lab, capsys, "--last", "1") == [second]


def test_programs_get_the_whole_hash(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.planned()
    lab.run("apply", "INTENT", "PLANS")
    seal = json.loads((lab.folder / "plans" / "sw.plan.json").read_text())["seal"]
    capsys.readouterr()
    assert lab.run("history", "sw", "--json") == SAME
    [entry] = json.loads(capsys.readouterr().out)["history"]
    assert (entry["plan"], entry["who"], entry["state"]) == (seal, operator(), "applied")
    assert lab.run("show", str(lab.folder / "plans" / "sw.plan.json"), "--json") == 2
    assert json.loads(capsys.readouterr().out)["plan"] == seal


def test_a_rolled_back_record_can_still_be_read(tmp_path: Path) -> None:
    records.keep(tmp_path, PLAN, state("before"), who="ann@host")
    records.undo(records.last(tmp_path, "sw"), "bob@host")
    [(device, record)] = records.history(tmp_path, [], 10)
    assert device == "sw"
    assert isinstance(record, records.Record)
    assert (record.who, record.before, record.state) == ("ann@host", state("before"), "rolled back")
    assert record.undone.startswith("bob@host 2")
    assert record.file.stat().st_mode & 0o077 == 0


def test_records_are_bounded_and_the_newest_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "KEPT", 3)
    for number in range(6):
        records.keep(tmp_path, PLAN, state(str(number)))
    found = [entry for _, entry in records.history(tmp_path, [], 10)]
    assert [each.before for each in found if isinstance(each, records.Record)] == [
        state(number) for number in ("3", "4", "5")
    ]
    assert records.last(tmp_path, "sw").before == state("5")


def test_records_sort_by_time_whatever_the_fraction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Second and fraction are of one reading of the clock: of two, the order could turn round."""
    times = iter([10**18 + 999_999_999, 10**18 + 10**9])
    monkeypatch.setattr("switchcfg.cli.records.time.time_ns", lambda: next(times))
    first = records.keep(tmp_path, PLAN, {})
    second = records.keep(tmp_path, PLAN, {})
    assert first.name.startswith("20010909T014640-999999999")
    assert second.name.startswith("20010909T014641-000000000")


def test_one_that_is_damaged_hides_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = records.keep(tmp_path, PLAN, {})
    records.keep(tmp_path, PLAN, {}, who=f"ann{NASTY}@host")
    file.write_text("{")
    assert main(["history", "--records", str(tmp_path)]) == SAME
    out = capsys.readouterr().out
    assert "damaged: " in out.splitlines()[1]
    assert "applied" in out.splitlines()[2]
    assert all(line.isprintable() for line in out.splitlines())
    assert main(["history", "--records", str(tmp_path), "--json"]) == SAME
    document = json.loads(capsys.readouterr().out)
    assert [each["state"] for each in document["history"]] == ["damaged", "applied"]


def test_records_of_before_who_was_noted_are_read(tmp_path: Path) -> None:
    file = records.keep(tmp_path, PLAN, {})
    body = json.loads(file.read_text())
    del body["who"], body["seal"]
    seal = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    file.write_text(json.dumps({**body, "seal": seal}))
    [(_, record)] = records.history(tmp_path, ["sw"], 10)
    assert isinstance(record, records.Record)
    assert record.who == ""
    assert digest(record.plan) == digest(PLAN)


def test_nobody_and_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "--records", str(tmp_path)]) == SAME
    assert "this host has applied no change" in capsys.readouterr().err
    records.keep(tmp_path, PLAN, {})
    assert main(["history", "ws", "--records", str(tmp_path)]) == FAILED
    assert "no record of 'ws'" in capsys.readouterr().err
    for wrong in ("0", "1001", "many"):
        assert main(["history", "--last", wrong]) == FAILED
        assert (
            f"{wrong!r}: must be a whole number from 1 to 1000 [bad_usage]"
            in capsys.readouterr().err
        )
