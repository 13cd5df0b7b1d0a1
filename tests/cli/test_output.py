import json
import os
from pathlib import Path

import pytest

from dlcpd.cli.output import Output
from dlcpd.cli.output_file import OutputFile
from dlcpd.contract.errors import BadConfig


def test_text_goes_to_stdout_and_progress_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(None)
    output.line("result")
    output.progress("half")
    output.document({"ignored": 1})
    assert capsys.readouterr() == ("result\n", "# half\n")


def test_a_terminal_gets_no_control_character(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(None)
    output.line("two\nlines \x1b[2J \x9b \r \u202e \ud800")
    output.progress("\x07")
    assert capsys.readouterr() == ("two\nlines \\x1b[2J \\x9b \\r \\u202e \\ud800\n", "# \\x07\n")


def test_with_json_on_stdout_nothing_else_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output("-")
    output.line("result")
    output.document({"a": [1]})
    out, err = capsys.readouterr()
    assert json.loads(out) == {"a": [1]}
    assert err == "result\n"


@pytest.mark.parametrize("to", [None, "-"])
def test_a_full_disk_behind_stdout_is_one_error(
    to: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr("sys.stdout", full)
        output = Output(to)
        with pytest.raises(BadConfig, match="output cannot be written: No space left"):
            output.document(1) if to else output.line("a")
        assert full.closed, "else the interpreter complains at its end"


def test_json_to_a_file(tmp_path: Path) -> None:
    Output(str(tmp_path / "x.json")).document({"a": 1.5})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": 1.5}


def test_a_file_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadConfig, match=r"absent/x\.json: there is no folder .*absent$"):
        Output(str(tmp_path / "absent" / "x.json"))
    with pytest.raises(BadConfig, match="is a folder"):
        Output(str(tmp_path))
    monkeypatch.setattr("os.access", lambda *_: False)  # to root everything is permitted
    with pytest.raises(BadConfig, match="may not write"):
        Output(str(tmp_path / "x.json"))
    assert list(tmp_path.iterdir()) == []  # the check makes nothing


def test_a_file_that_there_is_keeps_its_text_until_there_is_a_result(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text("before")
    output = Output(str(file))
    assert file.read_text() == "before"
    output.document([])
    assert file.read_text() == "[]\n"


def test_a_disk_that_fills_up_meanwhile_is_named() -> None:
    with pytest.raises(BadConfig, match="/dev/full: cannot be written: No space left"):
        Output("/dev/full").document({})


def test_json_has_no_nan() -> None:
    with pytest.raises(ValueError, match="JSON"):
        Output("-").document({"a": float("nan")})


def test_a_link_that_comes_after_the_check_is_not_followed(tmp_path: Path) -> None:
    victim, file = tmp_path / "victim", tmp_path / "x.json"
    victim.write_text("as it was")
    output = OutputFile("-o", file)
    output.check()
    file.symlink_to(victim)
    for act in (output.check, lambda: output.write("result")):
        with pytest.raises(BadConfig, match=r"^-o .*x\.json is a link, which is not followed"):
            act()
    assert victim.read_text() == "as it was" and file.is_symlink()


def test_a_result_keeps_the_mode_of_what_it_replaces(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.touch(0o600)
    OutputFile("-o", file).write("result")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("result", 0o600)
    assert [each.name for each in tmp_path.iterdir()] == ["x.json"]


def test_a_user_may_share_the_folder_of_a_result_and_root_may_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    output = OutputFile("-o", shared / "result")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(BadConfig, match="others may write to it"):
        output.check()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    output.check()
    output.write("text")
    assert (shared / "result").read_text() == "text"
    (shared / "elsewhere").write_text("kept")
    (shared / "link").symlink_to("elsewhere")
    with pytest.raises(BadConfig):
        OutputFile("-o", shared / "link").check()
    assert (shared / "elsewhere").read_text() == "kept"
