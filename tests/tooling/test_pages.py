"""Manual pages and completions, made as the Makefile and the .deb make them."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

PAGES: Final = Path(__file__).parents[2] / "deploy/pages"


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for module in ("shtab", "argparse_manpage"):
        pytest.importorskip(module, reason=f"pages: {module} is missing (make venv)")
    folder = tmp_path_factory.mktemp("share")
    subprocess.run([PAGES, sys.executable, folder], check=True, timeout=120)
    return folder


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("man1/dlcpctl.1", ("dlcpctl ledger", r"\-\-steps", "Exit codes")),
        ("man1/switchcfg.1", ("switchcfg plan", "switchcfg rollback", r"\-\-version")),
        ("man8/dlcpd.8", (r"\-\-check\-config",)),
    ],
)
def test_a_manual_page_has_the_commands(share: Path, page: str, words: tuple[str, ...]) -> None:
    text = (share / "man" / page).read_text()
    assert text.startswith(".TH ")
    for word in words:
        assert word in text.replace("\\fB", "").replace("\\fR", ""), word


@pytest.mark.parametrize("command", ["dlcpctl", "switchcfg"])
def test_shells_complete_both_commands(share: Path, command: str) -> None:
    script = share / "bash-completion/completions" / command
    done = subprocess.run(
        ["bash", "-c", f'source "{script}"; complete -p {command}'],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("complete ")
    assert (share / f"zsh/site-functions/_{command}").read_text().startswith(f"#compdef {command}")
