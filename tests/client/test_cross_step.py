"""Steps whose updates happen in the next forward pass, over real daemons."""

from pathlib import Path

import numpy as np
import pytest

from tests.client import cross_step_ranks
from tests.client.test_ddp import on_each_rank


@pytest.mark.parametrize("view", [False, True], ids=["copies", "views"])
def test_every_training_equals_the_frameworks(tmp_path: Path, view: bool) -> None:
    first, second = on_each_rank(cross_step_ranks.compared, tmp_path, view)
    assert {n: t["apart"] for n, t in first.items() if t["apart"] >= 1e-6} == {}
    for name, training in first.items():
        assert training["moved"] > 1e-3, name
        assert training["said"][0] == pytest.approx(training["said"][1], abs=1e-5), name
        assert np.array_equal(training["weights"], second[name]["weights"]), name
