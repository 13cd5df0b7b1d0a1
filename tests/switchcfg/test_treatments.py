"""`switchcfg ports --before --after`."""

import json
from pathlib import Path

import pytest

from switchcfg.cli.main import CHANGES, FAILED, SAME, main

EOS = """\
hostname leaf
qos map dscp 24 26 to traffic-class 3
qos profile ROCE
   qos trust dscp
   priority-flow-control on
   priority-flow-control priority 3 no-drop
interface Ethernet1
   service-profile ROCE
interface Ethernet2
"""


def compared(folder: Path, after: str, *more: str) -> int:
    for name, text in (("before", EOS), ("after", after)):
        (folder / name).write_text(text, encoding="utf-8")
    files = ("--before", str(folder / "before"), "--after", str(folder / "after"))
    return main(["ports", "--platform", "eos", *files, *more])


def test_differences_are_named_by_port_and_code_point(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    after = EOS.replace("dscp 24 26", "dscp 24").replace("no-drop", "drop")
    assert compared(tmp_path, after) == CHANGES
    # Bits 011 are of class 3 by default, so the lost entry for 26 changes nothing.
    assert capsys.readouterr().out == "Ethernet1: DSCP 24-31: pfc: no-drop by 3 -> none\n"
    assert compared(tmp_path, EOS.replace(" 26 to traffic-class 3", " 26 to traffic-class 2")) == 2
    out = capsys.readouterr().out
    assert "Ethernet1: DSCP 24, 26: traffic class: 3 -> 2\n" in out
    assert "Ethernet1: DSCP 24, 26: queue: 3 -> 2\n" in out
    assert "Ethernet2: DSCP 24, 26: queue: 3 -> 2\n" in out  # the map is that of the switch


def test_equal_configurations_have_no_difference_however_they_are_spelled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spelled = "hostname leaf\nqos map dscp 24 to traffic-class 3\n" + EOS.partition("\n")[2]
    assert compared(tmp_path, spelled, "--json") == SAME
    assert json.loads(capsys.readouterr().out) == {
        "differences": [],
        "unread": {"before": [], "after": []},
    }


def test_json_has_one_row_per_code_point_and_respect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compared(tmp_path, EOS.replace("24 26 to", "24 to").replace("24", "40"), "--json") == 2
    rows = json.loads(capsys.readouterr().out)["differences"]
    assert {(row["port"], row["point"]["number"]) for row in rows} == {
        ("Ethernet1", 40),
        ("Ethernet2", 40),
    }
    queue = next(row for row in rows if row["respect"] == "queue")
    assert (queue["before"], queue["after"]) == ("5", "3")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("ports",), "give INTENT, or --platform, --before and --after"),
        (("ports", "--before", "x"), "belong together"),
        (("ports", "intent.toml", "--platform", "eos", "--before", "x", "--after", "x"), "without"),
        (("ports", "--platform", "eos", "--before", "x", "--after", "x"), "x: cannot be read"),
    ],
)
def test_options_belong_together(
    words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == FAILED
    assert says in capsys.readouterr().err


def test_a_configuration_of_another_platform_is_one_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compared(tmp_path, "nv set interface swp1 type swp\n") == FAILED
    assert "is not a configuration of eos" in capsys.readouterr().err


def test_lines_that_were_not_read_are_shown_by_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = "".join(f"interface Ethernet{number}\n   shape rate 9\n" for number in range(3, 9))
    after = f"{EOS}{more}qos profile ROCE\n   foo key s3cret\n"
    assert compared(tmp_path, after) in (SAME, CHANGES)
    lines = capsys.readouterr().err.splitlines()
    assert (
        f'{tmp_path}/after: unread: qos profile ROCE: "foo key <masked>": not understood' in lines
    )
    assert len([line for line in lines if 'unread: Ethernet[3-8]: "shape rate 9": ' in line]) == 1
    assert compared(tmp_path, after, "--json") in (SAME, CHANGES)
    unread = json.loads(capsys.readouterr().out)["unread"]
    assert (unread["before"], len(unread["after"])) == ([], 2)
