import json
from pathlib import Path

import pytest

from dlcpd.contract.errors import BadConfig
from dlcpd.ctl.output import Output


def test_text_goes_to_stdout_and_progress_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(None)
    output.line("result")
    output.progress("half")
    output.document({"ignored": 1})
    assert capsys.readouterr() == ("result\n", "# half\n")


def test_with_json_on_stdout_nothing_else_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output("-")
    output.line("result")
    output.document({"a": [1]})
    out, err = capsys.readouterr()
    assert json.loads(out) == {"a": [1]}
    assert err == "result\n"


def test_json_to_a_file(tmp_path: Path) -> None:
    Output(str(tmp_path / "x.json")).document({"a": 1.5})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": 1.5}


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"absent/x\.json"):
        Output(str(tmp_path / "absent" / "x.json")).document({})


def test_json_has_no_nan() -> None:
    with pytest.raises(ValueError, match="JSON"):
        Output("-").document({"a": float("nan")})
