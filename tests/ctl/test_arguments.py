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


def test_the_socket_comes_from_the_environment_and_then_from_the_default() -> None:
    assert parser({}).parse_args(["status"]).socket == "/run/dlcpd/dlcpd.sock"
    assert parser({"DLCPD_SOCKET": "/x"}).parse_args(["peers"]).socket == "/x"
    assert parser({"DLCPD_SOCKET": "/x"}).parse_args(["peers", "--socket", "/y"]).socket == "/y"


def test_status_needs_no_torch(tmp_path: Path) -> None:
    line = ("status", "--socket", str(tmp_path / "absent"))
    done = dlcpctl_without((), *line, forbidden=ABSENT)
    assert done.returncode == command.FAILED
    assert "no daemon answers" in done.stderr
    assert "[daemon_unavailable]" in done.stderr
