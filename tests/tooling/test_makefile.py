"""What `make` would do, where nothing is installed yet and after each installation."""

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.kinds import COMPUTING, MAIN_PATHS, QUICK

ROOT: Final = Path(__file__).parents[2]
IDLE: Final = ROOT / ".ci" / "idle-priority"
PATIENCE: Final = 120.0  # seconds, as other processes may take all CPUs
PYTEST: Final = {".venv/bin/pytest", ".ci/beside"}
NEEDED: Final = ("Makefile", "pyproject.toml", "setup.py", "constraints.txt", ".ci/idle-priority")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What a target looks at, without .venv."""
    (tmp_path / ".ci").mkdir()
    for name in NEEDED:
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def commands(checkout: Path, target: str) -> str:
    """What make would run. Run by make itself, these tests hand on what it says in its
    environment: a make that knows of another one says more."""
    done = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", target],
        capture_output=True,
        text=True,
        check=True,
        cwd=checkout,
    )
    return done.stdout


def test_the_demo_installs_what_it_needs_and_no_more(checkout: Path) -> None:
    planned = commands(checkout, "demo")
    assert planned.count("pip install") == 1
    assert "-e '.[demo]'" in planned
    assert planned.rstrip().endswith("dlcpctl demo")


def test_the_tests_install_all_even_after_the_demo(checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / ".installed-for-the-demo").touch()
    assert "pip install" not in commands(checkout, "demo")
    planned = commands(checkout, "test")
    assert "-e '.[client,demo,dev," in planned
    # Then the demo has what it needs as well.
    assert "touch .venv/.installed-for-the-demo .venv/.installed" in planned


def test_the_fast_tests_are_some_of_all_tests(checkout: Path) -> None:
    fast, every = commands(checkout, "test"), commands(checkout, "test-all")
    assert f'-m "{QUICK}"' in fast  # tests/kinds.py makes use of it
    assert "--cov" not in fast
    assert "--cov-fail-under=95" in every


def test_every_test_is_in_one_part_of_all_tests(checkout: Path) -> None:
    """Or in two with markers of which a test has one."""
    (checkout / "tests").symlink_to(ROOT / "tests")
    lines = [shlex.split(line) for line in commands(checkout, "test-all").splitlines()]
    parts = [line[at + 1 :] for line in lines for at, word in enumerate(line) if word in PYTEST]
    for file in (ROOT / "tests").rglob("test_*.py"):
        name, folder = file.relative_to(ROOT).as_posix(), file.relative_to(ROOT).parts[1]
        expected = {"not computing"} | ({"computing"} if folder in COMPUTING else set())
        found = {marks for marks in (marks_for(name, part) for part in parts) if marks is not None}
        assert found in (expected, {"not heavy", "heavy"}, {""}), name


def marks_for(file: str, words: list[str]) -> str | None:
    """With which markers a command line of pytest runs tests of the file; None: it does not."""
    named = [word for word in words if word.startswith("tests/")] or ["tests"]
    ignored = [word.removeprefix("--ignore=") for word in words if word.startswith("--ignore=")]
    above = {file, *map(str, Path(file).parents)}
    if above.isdisjoint(named) or above.intersection(ignored):
        return None
    return words[words.index("-m") + 1] if "-m" in words else ""


def test_what_computes_runs_at_idle_priority_and_ends_as_it_says() -> None:
    done = subprocess.run(
        [str(IDLE), "sh", "-c", "chrt --pid $$; exit 3"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "SCHED_IDLE" in done.stdout, done.stderr


def test_what_computes_ends_with_its_parent() -> None:
    script = f"{IDLE} sh -c 'echo $$; exec sleep 600'; true"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        command = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        command.wait(PATIENCE)


def test_each_main_path_is_a_file() -> None:
    assert [name for name in MAIN_PATHS if not (ROOT / "tests" / name).is_file()] == []
