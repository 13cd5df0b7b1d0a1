"""The example under torchrun, beside averaged gradients."""

import re
from pathlib import Path

import pytest

from tests import examples
from tests.server.kit import Process

WORKERS, STEPS = 2, 15


@pytest.mark.timeout(240)  # seconds; it takes 15 s of CPU, on cores that others use as well
def test_the_example_learns_as_well_as_all_reduce(tmp_path: Path) -> None:
    server = Process(tmp_path, name="server", shards=2).ready()
    store = {"DLCPD_STORE": str(tmp_path / "store")}
    try:
        out = examples.output("train_ps.py", WORKERS, "--steps", str(STEPS), environ=store)
    finally:
        assert server.stop() == 0
    accuracies = [float(found) for found in re.findall(r"accuracy (\S+),", out)]
    assert len(accuracies) == WORKERS, out
    assert out.count(f"version {STEPS}\n") == WORKERS
    # running statistics of its batches are each worker's own
    assert min(accuracies) > examples.accuracy_of_all_reduce(WORKERS, STEPS) - 0.05, out
