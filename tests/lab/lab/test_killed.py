"""What a run leaves that had no time to clean up: found by name, and removed."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dlcp_lab.emulation import scratch


@pytest.mark.netns
def test_lab_down_all_removes_what_a_killed_bench_left() -> None:
    # Not tmp_path: its name is too long for the sockets inside.
    with tempfile.TemporaryDirectory() as scratch_root:
        done = subprocess.run(
            [
                "unshare",
                "--mount",
                "--propagation",
                "private",
                sys.executable,
                "-m",
                "tests.lab.lab.killed_run",
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=110,
            env={**os.environ, "TMPDIR": scratch_root},
        )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["before"]["names"]) == 3
    assert len(found["before"]["folders"]) >= 1
    assert found["said"].startswith("3 namespaces removed\n")
    assert found["after"] == {"names": [], "folders": [], "running": []}


def test_folders_of_the_living_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = f"dlcp-lab-1-x{'0' * 8}"  # of process 1, which lives, but has not claimed it
    (tmp_path / left).mkdir(0o700)
    (tmp_path / "dlcp-lab-notes").mkdir()
    with scratch.scratch_folder() as ours:
        assert set(os.listdir(tmp_path)) == {"dlcp-lab-notes", Path(ours).name}
        (tmp_path / left).mkdir(0o700)
        assert scratch.cleanup() == [left]
        assert set(os.listdir(tmp_path)) == {"dlcp-lab-notes", Path(ours).name}


def test_a_program_that_makes_no_fabric_makes_no_folder(tmp_path: Path) -> None:
    """Programs on hosts are ended by a signal, which leaves what they made where it is."""
    code = "import os, dlcp_lab.emulation.traffic.udp; os._exit(0)"
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environ, timeout=60)
    assert list(tmp_path.iterdir()) == []
