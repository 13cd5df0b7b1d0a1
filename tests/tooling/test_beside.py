"""Tests that fail beside others run once more by themselves, and CI hears of what fails then."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAILS_ONCE = """
def test_busy(pytestconfig):
    seen = pytestconfig.rootpath / "seen"
    known = seen.exists()
    seen.touch()
    assert known
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]")
    for name in ("beside", "alone"):
        (tmp_path / ".ci").mkdir(exist_ok=True)
        shutil.copy(ROOT / ".ci" / name, tmp_path / ".ci" / name)
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    return tmp_path


def run(project: Path, *words: str) -> tuple[int, str]:
    done = subprocess.run(words, capture_output=True, text=True, cwd=project, check=False)
    return done.returncode, done.stdout


def test_a_test_that_fails_beside_others_only_is_no_error(project: Path) -> None:
    (project / "test_a.py").write_text(FAILS_ONCE)
    (project / "test_b.py").write_text("def test_b():\n    pass\n")
    code, said = run(project, ".ci/beside", "test_a.py", "test_b.py")
    assert code == 0 and "1 failed, 1 passed" in said
    code, said = run(project, ".ci/alone")
    assert code == 0 and "1 passed" in said and "test_a.py::test_busy" in said


def test_a_test_that_fails_alone_as_well_is_an_error(project: Path) -> None:
    (project / "test_a.py").write_text("def test_a():\n    assert False\n")
    assert run(project, ".ci/beside", "test_a.py")[0] == 0
    assert run(project, ".ci/alone")[0] == 1


def test_nothing_runs_alone_where_nothing_failed(project: Path) -> None:
    (project / "test_a.py").write_text("def test_a():\n    pass\n")
    assert run(project, ".ci/beside", "test_a.py")[0] == 0
    assert run(project, ".ci/alone") == (0, "")


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"def test_{n}():\n    assert False\n" for n in range(6)),
        "import nothing_of_that_name\n",
        "import os\ndef test_a():\n    os._exit(1)\n",
    ],
    ids=["more than 5 fail", "not collected", "pytest dies"],
)
def test_more_than_a_few_failures_are_an_error_at_once(project: Path, text: str) -> None:
    (project / "test_a.py").write_text(text)
    assert run(project, ".ci/beside", "test_a.py")[0] != 0
