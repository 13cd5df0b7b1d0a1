"""The example under torchrun, beside averaged gradients; and the lines of the README."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from dlcp_client.ps.home import Home
from tests import examples
from tests.server.kit import Process, served

ROOT = Path(__file__).parents[2]
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
