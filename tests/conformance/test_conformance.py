"""Some tests of the suites, and what is expected of all of them, which `make conformance` runs."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance import expected
from tests.conformance.outcomes import Outcome
from tests.conformance.parts import Part
from tests.conformance.suites import EXPECTED, SUITES, expected_file

ROOT = Path(__file__).parents[2]
LIMIT = 240  # seconds; 40 on a free machine
FILES = sorted(EXPECTED.glob("*.txt"))

# One of each kind that PyTorch's suite runs for a backend whose name it does not know.
FAST = (
    "test_DistributedDataParallelCPU_grad_is_view", "test_all_gather",
    "test_all_gather_object_default_pg", "test_all_reduce_sum_complex", "test_barrier_full_group",
    "test_broadcast", "test_ddp_create_graph", "test_destroy_group", "test_gather", "test_isend",
    "test_reduce_product", "test_scatter", "test_send_recv_any_source", "test_send_recv_with_tag",
)  # fmt: skip


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.conformance.run", *arguments]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False
    )


@pytest.mark.timeout(LIMIT + 10)
def test_a_fast_part_of_pytorchs_suite_passes() -> None:
    done = run("--suite", "distributed-2", "--", *FAST)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(LIMIT + 10)
def test_accelerates_script_of_operations_passes() -> None:
    pytest.importorskip("accelerate")
    pytest.importorskip("torchdata")
    done = run("--suite", "accelerate", "--parts", "test_ops", "--", "test_ops")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_test_that_gloo_alone_passes_has_a_reason(file: Path) -> None:
    assert file in {expected_file(name) for name in SUITES}
    rows = expected.read(file).values()
    assert rows
    for row in rows:
        assert {row.ours, row.gloo} <= {"pass", "skip", "fail"}, row
        assert row.remark != expected.WHY, row
        assert row.remark or not (row.behind or row.ours == "fail"), row


def test_the_table_of_the_page_is_what_is_expected() -> None:
    assert expected.table() in (ROOT / "docs" / "pytorch.md").read_text()


HANGS = """
import time, unittest

class Some(unittest.TestCase):
    def test_a(self): pass
    def test_b(self): time.sleep(1000)
    def test_c(self): raise RuntimeError("wrong")
    def test_d(self): raise SystemExit(3)
    def test_e(self): self.skipTest("not here")
"""


@pytest.mark.timeout(LIMIT)
def test_a_test_that_hangs_or_ends_its_process_fails_and_the_rest_is_run(tmp_path: Path) -> None:
    folder = tmp_path / "pytorch" / "test" / "distributed"
    folder.mkdir(parents=True)
    (folder / "test_some.py").write_text(HANGS)
    part = Part("c10d", "gloo", "test_some.py", tmp_path, str(tmp_path / "pytorch"), silence=20.0)
    found = {each.test.rpartition(".")[2]: each for each in part.run()}
    verdicts = [found[f"test_{letter}"].verdict for letter in "abcde"]
    assert verdicts == ["pass", "fail", "fail", "fail", "skip"]
    assert "no end within" in found["test_b"].detail
    assert "RuntimeError: wrong" in found["test_c"].detail


def test_a_test_of_which_nothing_is_written_has_to_pass_where_gloo_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(expected, "expected_file", lambda name: tmp_path / name)
    ours = {name: Outcome(name, "fail") for name in "ab"} | {"c": Outcome("c", "pass")}
    gloo = {"a": Outcome("a", "fail"), "b": Outcome("b", "pass"), "c": Outcome("c", "fail")}
    [said] = expected.differences("fsdp", ours, gloo, [])
    assert said.startswith("b: dlcp: fail, expected pass")


def test_of_a_file_that_does_not_run_nothing_is_expected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(expected, "expected_file", lambda name: tmp_path / name)
    expected.write(tmp_path / "c10d", [expected.Row(f"{f}.py::T.t", "pass", "pass") for f in "ab"])
    ours = {"a.py::T.t": Outcome("a.py::T.t", "pass")}
    assert not expected.differences("c10d", ours, {}, [], ["a.py"])
    [said] = expected.differences("c10d", ours, {}, [])
    assert said == "b.py::T.t: dlcp: absent, expected pass"
