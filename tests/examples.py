"""An example of examples/ under torchrun, and what it is compared with."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import torch

from dlcp_lab.training.tasks import Digits

EXAMPLES = Path(__file__).parents[1] / "examples"


def output(
    name: str,
    ranks: int,
    *options: str,
    environ: Mapping[str, str] | None = None,
    timeout: float = 200.0,
) -> str:
    """What the example printed; it ended well, within `timeout` seconds."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            str(ranks),
            str(EXAMPLES / name),
            *options,
        ],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(environ or {})},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def accuracy_of_all_reduce(ranks: int, steps: int) -> float:
    """The digits, with gradients averaged over the same batches from the same start, in this
    process."""
    torch.manual_seed(0)
    task = Digits()
    model = task.model()
    optimizer = task.optimizer(model)
    for step in range(steps):
        optimizer.zero_grad()
        for rank in range(ranks):
            (task.loss(model, step, rank) / ranks).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    model.eval()
    with torch.no_grad():
        return task.score(model)
