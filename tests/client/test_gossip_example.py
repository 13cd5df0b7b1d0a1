"""The example under torchrun, beside the same training with averaged gradients."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dlcp_lab.training.tasks import Digits

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_gossip.py"
RANKS, STEPS = 3, 30


def accuracy_of_all_reduce() -> float:
    """Gradients averaged over the same batches from the same start, in this process."""
    torch.manual_seed(0)
    task = Digits()
    model = task.model()
    optimizer = task.optimizer(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in range(RANKS):
            (task.loss(model, step, rank) / RANKS).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    model.eval()
    with torch.no_grad():
        return task.score(model)


@pytest.mark.timeout(240)  # seconds; it takes 20 s of CPU, on cores that others use as well
def test_the_example_learns_as_well_as_all_reduce() -> None:
    options = ("--codec", "top-k")  # the least that can be sent; test_gossip.py has the others
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*torchrun, "--nproc-per-node", str(RANKS), str(EXAMPLE), "--steps", str(STEPS), *options],
        capture_output=True, text=True, timeout=200, check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    accuracies = [float(found) for found in re.findall(r"accuracy (\S+),", done.stdout)]
    distances = [float(found) for found in re.findall(r"distance (\S+)", done.stdout)]
    assert len(accuracies) == RANKS and len(set(accuracies)) == 1, done.stdout
    assert accuracies[0] > accuracy_of_all_reduce() - 0.05, done.stdout
    assert len(distances) == STEPS // 10 and all(0 < one < 100 for one in distances)
