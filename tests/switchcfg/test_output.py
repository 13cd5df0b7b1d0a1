"""What gets out: errors as JSON, devices one by one, and nothing that steers a terminal."""

import ast
import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import switchcfg.cli
from switchcfg.cli.main import CHANGES, FAILED, SAME, main
from switchcfg.cli.output import printable
from tests.switchcfg.intents import WHOLE

# An escape sequence of C0 and one of C1, a direction that is turned, a line's end, a delete.
NASTY = "\x1b[2J\x9b31m\u202e\u2028\x7f\x07"
ESCAPED = r"\x1b[2J\x9b31m\u202e\u2028\x7f\x07"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "intent.toml").write_text(WHOLE)
    (tmp_path / "now").mkdir()
    (tmp_path / "now" / "leaf2.txt").write_text("hostname leaf2\ninterface Ethernet1/1\n")
    return tmp_path


def told(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_one_missing_file_stops_no_other_device(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = folder / "plans"
    words = ["plan", str(folder / "intent.toml"), "--present", str(folder / "now")]
    assert main([*words, "--out", str(out)]) == FAILED
    said, err = capsys.readouterr()
    assert "+ interface profile Ethernet1/1" in said
    assert "contains 0 files leaf1.*, and exactly one is needed [bad_state]\n" in err
    assert [line.split(maxsplit=2) for line in said.splitlines()[-4:-1]] == [
        ["device", "platform", "status"],
        ["leaf1", "sonic", "failed: bad_state"],
        ["leaf2", "eos", said.splitlines()[-2].split(maxsplit=2)[2]],
    ]
    assert said.splitlines()[-2].endswith(" changes")
    assert [file.name for file in out.iterdir()] == ["leaf2.plan.json"]


def test_what_cannot_be_planned_any_more_has_no_plan_of_before(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["plan", str(folder / "intent.toml"), "--present", str(folder / "now")]
    words += ["--out", str(folder)]
    assert main([*words, "--only", "leaf2"]) == CHANGES
    assert (folder / "leaf2.plan.json").exists()
    (folder / "now" / "leaf2.txt").unlink()
    capsys.readouterr()
    assert main([*words, "--json"]) == FAILED
    assert not (folder / "leaf2.plan.json").exists()
    assert set(told(capsys)["failed"]) == {"leaf1", "leaf2"}


def test_devices_fail_one_by_one_in_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", str(folder / "intent.toml"), "--present", str(folder / "now"), "--json"]
    assert main(words) == FAILED
    document = told(capsys)
    assert [each["device"] for each in document["plans"]] == ["leaf2"]
    assert document["done"] == ["leaf2"]
    assert document["failed"]["leaf1"]["code"] == "bad_state"
    assert "exactly one" in document["failed"]["leaf1"]["message"]
    assert document["devices"]["leaf1"] == {"platform": "sonic", "status": "failed: bad_state"}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["plan", "INTENT", "--present", "absent"], "bad_state"),
        (["verify", "absent.toml"], "bad_intent"),
        (["plan", "INTENT", "--only", "nobody"], "bad_intent"),
        (["apply", "INTENT", "absent.plan.json"], "bad_plan"),
        (["show", "absent.plan.json"], "bad_plan"),
        (["doctor"], "bad_usage"),
        (["plan", "INTENT", "--prezent", "x"], "bad_usage"),
        (["plan", "INTENT", "--present", "NOW", "--only", "leaf2", "--out", "INTENT"], "os_error"),
    ],
)
def test_an_error_is_a_json_document_where_json_is_asked_for(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: str
) -> None:
    paths = {"INTENT": str(folder / "intent.toml"), "NOW": str(folder / "now")}
    assert main([*(paths.get(word, word) for word in words), "--json"]) == FAILED
    said, err = capsys.readouterr()
    document = json.loads(said)
    assert list(document) == ["error"]
    assert document["error"]["code"] == code
    assert document["error"]["message"] in err
    assert f"[{code}]\n" in err


def test_a_saved_plan_is_told_in_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", str(folder / "intent.toml"), "--present", str(folder / "now")]
    main([*words, "--only", "leaf2", "--out", str(folder)])
    capsys.readouterr()
    assert main(["show", str(folder / "leaf2.plan.json"), "--json"]) == CHANGES
    assert told(capsys)["plans"][0]["device"] == "leaf2"


def test_what_devices_say_cannot_steer_a_terminal(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name and a value of a device, in a plan, in an error and in a plan that is shown."""
    # A reader refuses the other control characters.
    profile = "DLCP-\x9b31m\u202e"
    text = f"interface Ethernet1/1\n   service-profile {profile}\n"
    (folder / "now" / "leaf2.txt").write_text(text)
    words = ["plan", str(folder / "intent.toml"), "--present", str(folder / "now")]
    words += ["--only", "leaf2"]
    assert main([*words, "--out", str(folder)]) == CHANGES
    said = capsys.readouterr().out
    assert_harmless(said)
    assert r"\x9b31m\u202e" in said
    raw_in_file = (folder / "leaf2.plan.json").read_text()
    assert json.loads(raw_in_file)["changes"], "the plan itself has values as they are"
    assert main(["show", str(folder / "leaf2.plan.json")]) == CHANGES
    assert_harmless(capsys.readouterr().out)
    (folder / "now" / "leaf1.txt").write_text(json.dumps({NASTY: 1, "QUEUE": {NASTY: NASTY}}))
    assert main(["plan", str(folder / "intent.toml"), "--present", str(folder / "now")]) == FAILED
    out, err = capsys.readouterr()
    assert ESCAPED in err
    assert_harmless(out, err)
    assert main([*words[:-2], "--json"]) == FAILED
    out, err = capsys.readouterr()
    assert out.isascii()
    assert_harmless(out, err)
    assert main(["render", f"absent{NASTY}.toml"]) == FAILED
    assert_harmless(*capsys.readouterr())


def assert_harmless(*texts: str) -> None:
    for text in texts:
        for line in text.split("\n"):
            assert line.replace("\t", " ").isprintable(), repr(line)


@given(st.text())
def test_printable_text_has_no_controls_and_keeps_the_rest(text: str) -> None:
    shown = printable(text)
    assert not any(unicodedata.category(char) in {"Cc", "Cf", "Zl", "Zp"} for char in shown)
    assert printable(shown) == shown
    if text.isprintable():
        assert shown == text


def test_nothing_of_the_command_prints_past_that_one_place() -> None:
    """But for the usage, which is the grammar's own, and for closing a pipe that is gone."""
    folder = Path(switchcfg.cli.__file__).parent
    found = []
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            written = ast.unparse(node) if isinstance(node, ast.Call) else ""
            if written.startswith(("print(", "sys.stdout", "sys.stderr")):
                found.append(f"{file.name}: {written}")
    assert sorted(each for each in found if not each.startswith("output.py")) == [
        "main.py: sys.stderr.close()",
        "main.py: sys.stderr.write(exc.usage)",
    ]


def test_nothing_is_wrong_where_nothing_is(folder: Path) -> None:
    main(["render", str(folder / "intent.toml"), "--only", "leaf2", "--out", str(folder / "is")])
    words = ["plan", str(folder / "intent.toml"), "--present", str(folder / "is")]
    assert main([*words, "--only", "leaf2"]) == SAME


def test_a_refusal_has_a_line_for_each_problem_and_no_line_that_a_device_made(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nasty = "Theirs\x9b2J"
    text = f"interface Ethernet1/1\n   service-profile {nasty}\ninterface Ethernet9\n"
    (folder / "now" / "leaf2.txt").write_text(text)
    words = ["plan", str(folder / "intent.toml"), "--present", str(folder / "now")]
    assert main([*words, "--only", "leaf2"]) == FAILED
    title, *problems = capsys.readouterr().err.splitlines()[:2]
    assert title.startswith("switchcfg: leaf2")
    assert problems[0].startswith(r"  kept: Ethernet1/1 has 'Theirs")
    assert "\x9b" not in title + problems[0]
