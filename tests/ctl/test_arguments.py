"""The operating commands; what is typed wrong gives exit code 2 and a line that says so."""

from pathlib import Path

import pytest

from dlcpd.cli.extensions import installed
from dlcpd.ctl import main as command
from dlcpd.ctl.arguments import GROUPS, parser
from dlcpd.ctl.operating import ENDS, LOOKS
from tests.ctl.without import ABSENT, dlcpctl_without


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "COMMAND"),
        ("stats", "dlcpctl has no command 'stats'; did you mean status or paths?"),
        ("sing", "dlcpctl has no command 'sing'; dlcpctl --help lists them"),
        ("config shwo", "dlcpctl config has no command 'shwo'; did you mean show?"),
        ("status --ledger 1001", "0..1000"),
        # no abbreviations: they break when options are added
        (
            "status --sock x",
            "dlcpctl status: error: unrecognized arguments: --sock x; did you mean",
        ),
        ("status --sokcet=x", "--sokcet=x; did you mean --socket?"),
        ("keys list --key x", "dlcpctl keys list: error: unrecognized arguments: --key x; did you"),
        ("config diff --wiat 3 x", "did you mean --wait?"),
        ("cordon --xyz", "--xyz; dlcpctl cordon --help lists all"),
        ("--vresion status", "dlcpctl: error: unrecognized arguments: --vresion"),
        ("status now", "dlcpctl status: error: unrecognized arguments: now\n"),
    ],
)
def test_usage_errors(line: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(line.split())
    assert ended.value.code == command.USAGE
    assert says in capsys.readouterr().err


def test_help_groups_commands_and_lists_each_once() -> None:
    lines = parser({}, installed()).format_help().splitlines()
    headings = [line.strip() for line in lines if line.endswith(":") and line.startswith("  ")]
    assert headings == ["look:", "act:", "measure:"]
    listed = [line.split()[0] for line in lines if line.startswith("    ") and line[4] != " "]
    assert sorted(listed) == sorted(name for _, names in GROUPS for name in names)
    names = [name for name, *_ in (*LOOKS, *ENDS)] + [entry.name for entry in installed()]
    assert set(names) <= set(listed)


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
