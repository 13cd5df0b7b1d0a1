"""The example under torchrun, beside averaged gradients; and the lines of the README."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from dlcp_client.ps.home import Home
from dlcp_lab.training.tasks import Digits
from tests.server.kit import Process, served

ROOT = Path(__file__).parents[2]
WORKERS, STEPS = 2, 15


def accuracy_of_all_reduce() -> float:
    """Gradients averaged over the same batches from the same start, in this process."""
    torch.manual_seed(0)
    task = Digits()
    model = task.model()
    optimizer = task.optimizer(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in range(WORKERS):
            (task.loss(model, step, rank) / WORKERS).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    model.eval()
    with torch.no_grad():
        return task.score(model)


@pytest.mark.timeout(240)  # seconds; it takes 15 s of CPU, on cores that others use as well
def test_the_example_learns_as_well_as_all_reduce(tmp_path: Path) -> None:
    server = Process(tmp_path, name="server", shards=2).ready()
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    example = str(ROOT / "examples" / "train_ps.py")
    try:
        done = subprocess.run(
            [*torchrun, "--nproc-per-node", str(WORKERS), example, "--steps", str(STEPS)],
            capture_output=True, text=True, timeout=200, check=False,
            env=os.environ | {"OMP_NUM_THREADS": "1", "DLCPD_STORE": str(tmp_path / "store")},
        )  # fmt: skip
    finally:
        assert server.stop() == 0
    assert done.returncode == 0, done.stderr
    accuracies = [float(found) for found in re.findall(r"accuracy (\S+),", done.stdout)]
    assert len(accuracies) == WORKERS, done.stdout
    assert done.stdout.count(f"version {STEPS}\n") == WORKERS
    # running statistics of its batches are each worker's own
    assert min(accuracies) > accuracy_of_all_reduce() - 0.05, done.stdout


def test_the_lines_of_the_readme_train(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    [lines] = [block for block in blocks if "ps.register" in block]
    model = torch.nn.Linear(3, 1)
    before = model.weight.detach().clone()
    with served(tmp_path, home, name="server") as found:
        variables = {"RANK": "0", "WORLD_SIZE": "1", "DLCPD_STORE": found["store"]}
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        space: dict[str, Any] = {"torch": torch, "model": model}
        exec(lines, space)  # noqa: S102  # it is ours
        model(torch.ones(3)).sum().backward()
        space["optimizer"].step()
        assert not torch.equal(model.weight, before)
        space["handle"].close()
