"""Steps whose updates happen in the next forward pass: of a compiled model, and of the example."""

from pathlib import Path

import numpy as np

from tests import examples
from tests.client import cross_step_ranks
from tests.client.test_ddp import on_each_rank


def test_a_compiled_training_equals_the_frameworks(tmp_path: Path) -> None:
    first, second = on_each_rank(cross_step_ranks.compared_compiled, tmp_path)
    assert first["apart"] < 1e-6 and first["moved"] > 1e-3
    assert np.array_equal(first["weights"], second["weights"])


def test_the_example_runs_under_torchrun() -> None:
    example = examples.EXAMPLES / "train_cross_step.py"
    assert len(example.read_text().splitlines()) <= 80
    out = examples.output("train_cross_step.py", 2, timeout=110)
    losses = [float(line.split()[-1]) for line in out.splitlines() if "loss" in line]
    assert losses[-1] < 0.5 * losses[0]
    assert "Ledger(operations=" in out
