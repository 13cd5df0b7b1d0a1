"""What `make` would do, where nothing is installed yet and after each installation."""

import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.kinds import MAIN_PATHS, QUICK

ROOT: Final = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What a target looks at, without .venv."""
    for name in ("Makefile", "pyproject.toml", "setup.py", "constraints.txt"):
        (tmp_path / name).write_text((ROOT / name).read_text())
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
    assert "-m" not in every.partition("--durations")[2].split()
    assert "--cov-fail-under=95" in every


def test_each_main_path_is_a_file() -> None:
    assert [name for name in MAIN_PATHS if not (ROOT / "tests" / name).is_file()] == []
