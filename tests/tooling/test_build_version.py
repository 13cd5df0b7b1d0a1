"""The version of a build is that of its commit, and later commits have later versions."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dlcpd import build
from dlcpd.build import NOTE, RELEASE, VARIABLE, built, described, parsed
from tests.pages import ROOT


def git(folder: Path, *words: str) -> str:
    as_one = ["-c", "user.name=x", "-c", "user.email=x@x", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", "-C", str(folder), *as_one, *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "file").write_text("1")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "--quiet", "--message", "1")
    return tmp_path


def version(folder: Path) -> str:
    found = described(folder)
    assert found
    name, commit = parsed(found)
    assert git(folder, "rev-parse", "HEAD").startswith(commit) and len(commit) >= 7
    return name


def test_commits_count_up_to_a_release_and_on(checkout: Path) -> None:
    assert version(checkout).startswith(f"{RELEASE}.dev1+g")
    git(checkout, "tag", "v0.1.0")
    assert version(checkout) == "0.1.0"
    (checkout / "file").write_text("2")
    assert version(checkout).startswith(f"{RELEASE}.dev1+g") and "changed" in version(checkout)
    git(checkout, "commit", "--quiet", "--all", "--message", "2")
    assert version(checkout).startswith(f"{RELEASE}.dev2+g") and "changed" not in version(checkout)


def test_a_copy_has_no_commit_unless_it_is_told(checkout: Path) -> None:
    below = checkout / "copy"
    below.mkdir()
    assert described(below) is None, "not the checkout above it"
    assert built(below, {}) == f"{RELEASE}.dev0"
    assert built(below, {VARIABLE: "1.2.3 0123abc"}) == "1.2.3 0123abc"
    with pytest.raises(ValueError, match="is not VERSION COMMIT"):
        built(below, {VARIABLE: "next"})


def test_a_build_from_a_copy_can_be_told_the_version() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "dlcpd" / "build.py")],
        env=os.environ | {VARIABLE: "1.2.3rc1 0123abc"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "1.2.3rc1 0123abc\n"


def test_git_that_fails_is_no_version(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert described(checkout) is None


def test_a_built_package_says_what_its_note_says(tmp_path: Path) -> None:
    package = tmp_path / "dlcpd"
    package.mkdir()
    for name in ("__init__.py", "build.py"):
        (package / name).write_text((ROOT / "dlcpd" / name).read_text())
    (package / NOTE).write_text("4.5.6.dev7+g89abcde 89abcde\n")
    program = "import dlcpd.build as b; print(b.__file__, b.VERSION, b.COMMIT, dlcpd.__version__)"
    done = subprocess.run(
        [sys.executable, "-c", f"import dlcpd; {program}"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    where, *found = done.stdout.split()
    assert Path(where).is_relative_to(tmp_path)
    assert found == ["4.5.6.dev7+g89abcde", "89abcde", "4.5.6.dev7+g89abcde"]


def test_a_checkout_is_no_release() -> None:
    assert build.noted() is None
    assert f"{RELEASE}.dev0" == build.VERSION and not build.COMMIT
