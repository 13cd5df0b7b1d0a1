"""The operating commands; what is typed wrong gives exit code 2 and a line that says so."""

from pathlib import Path

import pytest

from dlcpd.ctl import main as command
from dlcpd.ctl.arguments import parser
from tests.ctl.without import ABSENT, dlcpctl_without


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "COMMAND"),
        ("stats", "invalid choice"),
        ("status --ledger 1001", "0..1000"),
        ("status --sock x", "unrecognized"),  # no abbreviations: they break when options are added
    ],
)
def test_usage_errors(line: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(line.split())
    assert ended.value.code == command.USAGE
    assert says in capsys.readouterr().err


def test_the_socket_comes_from_the_environment_where_it_is_not_given() -> None:
    assert parser({}).parse_args(["status"]).socket is None  # see tests/inspection/test_private.py
    assert parser({"DLCPD_SOCKET": "/x"}).parse_args(["peers"]).socket == "/x"
    assert parser({"DLCPD_SOCKET": "/x"}).parse_args(["peers", "--socket", "/y"]).socket == "/y"


def test_status_needs_no_torch(tmp_path: Path) -> None:
    line = ("status", "--socket", str(tmp_path / "absent"))
    done = dlcpctl_without((), *line, forbidden=ABSENT)
    assert done.returncode == command.FAILED
    assert "no daemon answers" in done.stderr
    assert "dlcpd --config FILE" in done.stderr
    assert "[daemon_unavailable]" in done.stderr


def test_the_json_file_is_looked_at_before_anything_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "absent" / "x.json"
    # Without the check it would be the daemon, asked first, that is complained about.
    assert command.main(["status", "--socket", "/nowhere", "--json", str(file)]) == command.USAGE
    assert capsys.readouterr().err.startswith(f"dlcpctl: --json {file}: there is no folder")
