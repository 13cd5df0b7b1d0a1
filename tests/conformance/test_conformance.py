"""Some of PyTorch's own distributed suite; all of it by `make conformance`."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT = 240  # seconds; 40 on a free machine

# One of each kind that the suite runs for a backend whose name it does not know.
FAST = (
    "test_DistributedDataParallelCPU_grad_is_view", "test_all_gather",
    "test_all_gather_object_default_pg", "test_all_reduce_sum_complex", "test_barrier_full_group",
    "test_broadcast", "test_ddp_create_graph", "test_destroy_group", "test_gather", "test_isend",
    "test_reduce_product", "test_scatter", "test_send_recv_any_source", "test_send_recv_with_tag",
)  # fmt: skip


@pytest.mark.timeout(LIMIT + 10)
def test_a_fast_part_of_pytorchs_suite_passes() -> None:
    command = [sys.executable, "-m", "tests.conformance.run", "--ranks", "2", *FAST]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
