"""What a shell completes, and the manual pages: all from the grammar."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from dlcpd.ctl import main as command
from dlcpd.ctl.arguments import documented
from tests.ctl.without import dlcpctl_without

ROOT: Final = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> str:
    """For bash."""
    pytest.importorskip("shtab", reason="completion: shtab is missing (make venv)")
    line = [sys.executable, "-m", "dlcpd.ctl.main", "completion", "bash"]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("words", "reply"),
    [
        ("dlcpctl doc", "doctor"),
        ("dlcpctl doctor --pe", "--peer"),
        ("dlcpctl config exp", "explain"),
        ("dlcpctl doctor --config /et", "/etc"),
    ],
)
def test_bash_completes(script: str, words: str, reply: str) -> None:
    given = words.split()
    lines = (
        f"{script}\ncompopt() {{ :; }}\nCOMP_WORDS=({words})\nCOMP_CWORD={len(given) - 1}\n"
        f"_shtab_dlcpctl dlcpctl '{given[-1]}' '{given[-2]}'\n"
        "printf '%s\\n' \"${COMPREPLY[@]}\"\n"
    )
    done = subprocess.run(["bash"], input=lines, capture_output=True, text=True, check=False)
    assert reply in done.stdout.split(), done.stderr


def test_without_shtab_the_command_says_what_installs_it() -> None:
    done = dlcpctl_without(("shtab",), "completion", "bash")
    assert done.returncode == command.USAGE
    assert "pip install 'dlcpd[completion]'" in done.stderr


def test_the_exit_codes_are_in_the_help() -> None:
    assert "2 the command line, the configuration or a file is wrong" in " ".join(
        documented().format_help().split()
    )


def test_manual_pages_name_every_command(tmp_path: Path) -> None:
    pytest.importorskip("argparse_manpage", reason="pages: argparse-manpage is missing (make venv)")
    pytest.importorskip("shtab", reason="pages: shtab is missing (make venv)")
    binaries = Path(sys.executable).parent
    subprocess.run(
        ["make", "-s", "-o", ".venv/.installed", "pages", f"SHARE={tmp_path}", f"BIN={binaries}"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    page = (tmp_path / "man" / "man1" / "dlcpctl.1").read_text()
    for name in ("doctor", "top", "config", "drain", "completion", "status", "bench"):
        assert f"dlcpctl {name}" in page
    assert "Exit codes" in page
    assert str(ROOT) not in page
    assert "check\\-config" in (tmp_path / "man" / "man8" / "dlcpd.8").read_text()
    page = (tmp_path / "man" / "man1" / "switchcfg.1").read_text()
    for name in ("render", "plan", "apply", "rollback", "doctor", "ports", "history", "import"):
        assert f"switchcfg {name}" in page
    for program in ("dlcpctl", "switchcfg"):
        zsh = tmp_path / "zsh" / "site-functions" / f"_{program}"
        assert zsh.read_text().startswith(f"#compdef {program}")
        bash = tmp_path / "bash-completion" / "completions" / program
        complete = f'source "{bash}"; complete -p {program}'
        subprocess.run(["bash", "-c", complete], check=True, capture_output=True)
