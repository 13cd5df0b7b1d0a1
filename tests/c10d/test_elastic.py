"""torchrun starts a job again that has lost a rank; of the first start nothing is left."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("elastic.py")


@pytest.mark.parametrize("size", [2, 3])
def test_a_job_is_started_again_after_a_rank_died(size: int, tmp_path: Path) -> None:
    argv = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
        str(size), "--max-restarts", "1", str(SCRIPT), str(tmp_path),
    ]  # fmt: skip
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        argv, env=environ, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    left = sorted(file.name for file in tmp_path.iterdir())
    assert left == [f"rank{rank}.start1" for rank in range(size)]
