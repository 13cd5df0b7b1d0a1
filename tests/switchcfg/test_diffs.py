"""What devices themselves say that a plan changes: beside ours, escaped, bounded, and kept."""

import json

import pytest

from switchcfg.cli import diffs
from switchcfg.cli.main import FAILED, SAME
from tests.switchcfg.test_on_devices import Lab, lab
from tests.switchcfg.test_output import ESCAPED, NASTY

__all__ = ["lab"]  # the fixture
SAYS = f"@@ -1 +1 @@\n-\tone{NASTY}\nsw: confirmed"


def test_diff_prints_each_devices_own_and_changes_nothing(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.planned()
    before = lab.drivers["sw"].device.says()
    lab.drivers["sw"].says = SAYS
    capsys.readouterr()
    assert lab.run("diff", "INTENT", "PLANS") == SAME
    said, err = capsys.readouterr()
    assert said.splitlines() == [
        "sw (linux): the device reports changes:",
        "  @@ -1 +1 @@",
        # A line that is ended in some other way than by \n is two lines, and none of them is ours.
        f"  -       one{ESCAPED.partition(chr(92) + 'u2028')[0]}",
        f"  {ESCAPED.partition(chr(92) + 'u2028')[2]}",
        "  sw: confirmed",
        "sw2 (linux): the device computes no diff before a change",
    ]
    assert [line.split(maxsplit=2)[2] for line in err.splitlines()] == [
        "status",
        "the device reports changes",
        "the device computes no diff before a change",
    ]
    assert lab.drivers["sw"].device.says() == before
    assert "commit" not in lab.drivers["sw"].calls


def test_diff_says_so_where_nothing_changes(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.planned()
    lab.drivers["sw"].says = ""
    lab.run("apply", "INTENT", "PLANS", "--only", "sw2")
    lab.run("plan", "INTENT", "--out", "PLANS")
    capsys.readouterr()
    assert lab.run("diff", "INTENT", "PLANS") == SAME
    assert capsys.readouterr().out.splitlines() == [
        "sw (linux): the device reports no change",
        "sw2 (linux): nothing to do",
    ]
    assert lab.run("diff", "INTENT", "PLANS", "--json") == SAME
    document = json.loads(capsys.readouterr().out)
    assert document["diffs"] == {"sw": ""}
    assert document["devices"]["sw2"]["status"] == "nothing to do"


def test_one_that_fails_stops_no_other_and_is_an_error(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.planned()
    lab.run("apply", "INTENT", "PLANS", "--only", "sw")  # so it is no longer as planned
    lab.drivers["sw2"].says = "+ a line"
    capsys.readouterr()
    assert lab.run("diff", "INTENT", "PLANS", "--json") == FAILED
    document = json.loads(capsys.readouterr().out)
    assert document["failed"]["sw"]["code"] == "moved"
    assert document["diffs"] == {"sw2": "+ a line"}


def test_a_plan_for_another_platform_is_refused(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.planned()
    file = lab.folder / "intent.toml"
    file.write_text(file.read_text().replace('"linux"', '"openconfig"'))
    assert lab.run("diff", "INTENT", "PLANS", "--only", "sw") == FAILED
    assert (
        "the plan is for platform linux, and the intent says openconfig: plan again [bad_plan]"
        in capsys.readouterr().err
    )
    assert "diff" not in lab.drivers["sw"].calls


def test_apply_shows_it_where_it_is_asked_to_before_it_is_kept(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    for driver in lab.drivers.values():
        driver.says = SAYS
    lab.planned()
    lab.run("apply", "INTENT", "PLANS", "--only", "sw")
    assert "the device reports changes" not in capsys.readouterr().err
    assert lab.run("apply", "INTENT", "PLANS", "--only", "sw2", "--diff", "--json") == SAME
    said, err = capsys.readouterr()
    lines = err.splitlines()
    shown = lines.index("sw2 (linux): the device reports changes:")
    assert lines[shown + 1] == "  @@ -1 +1 @@"
    assert shown < lines.index("sw2: matches the plan") < lines.index("sw2: confirmed")
    assert "\x1b" not in err
    # As it was said, but that every end of a line is \n.
    assert json.loads(said)["diffs"] == {"sw2": "\n".join(SAYS.splitlines())}


def test_history_keeps_it(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.planned()
    lab.drivers["sw"].says = "+ a line"
    lab.run("apply", "INTENT", "PLANS", "--only", "sw", "--diff")
    lab.run("apply", "INTENT", "PLANS", "--only", "sw2")
    lab.run("rollback", "INTENT", "--only", "sw")  # writes the record anew
    capsys.readouterr()
    assert lab.run("history", "--json") == SAME
    entries = json.loads(capsys.readouterr().out)["history"]
    assert [(each["state"], each["diff"]) for each in entries] == [
        ("rolled back", "+ a line"),
        ("applied", None),
    ]


def test_it_is_bounded_and_says_what_is_left_out() -> None:
    many = "\n".join(f"+ {each}" for each in range(diffs.LINES + 7))
    shown = diffs.shortened(f"{'x' * 2 * diffs.WIDTH}\n{many}").splitlines()
    assert len(shown) == diffs.LINES + 1
    assert shown[0] == f"{'x' * diffs.WIDTH}..."
    assert shown[-1] == "... and 8 more lines"
    assert diffs.shortened(many.partition("\n")[0]) == "+ 0"
