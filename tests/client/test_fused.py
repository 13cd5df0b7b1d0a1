"""Updates inside the reduction of gradients, over real daemons: equal to DDP's, to the bit."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import examples
from tests.client import fused_growth, fused_ranks
from tests.client.test_ddp import on_each_rank


@pytest.mark.parametrize("world", [2, 3, 4])
def test_every_optimizer_equals_the_frameworks(tmp_path: Path, world: int) -> None:
    ranks = on_each_rank(fused_ranks.compared, tmp_path, world, world=world)
    for name, found in ranks[0].items():
        for rank in ranks:
            assert rank[name]["equal"], f"{name}: not the weights of DDP over dlcpd"
            assert rank[name]["state"], f"{name}: not the state of torch's optimizer"
            assert rank[name]["returned"], name
            assert rank[name]["parts"] <= 1.05 * found["whole"] / world + 4096, name
            assert np.array_equal(rank[name]["weights"], found["weights"]), name
            for changed in (rank[name]["clipped"], rank[name]["scaled"]):
                if changed is not None:
                    assert changed["apart"] < 1e-6, f"{name}: clipped, scaled, accumulated"
                    assert changed["norms apart"] < 1e-6, name
                    assert changed["scales"][0] == changed["scales"][1] != 1024.0, name
                    assert changed["infinite"] == [5, 25], name
        if found["scaled"] is not None:
            assert found["scaled"]["apart"] == 0.0, f"{name}: scaled and accumulated"
        # Gloo divides before it adds: for two ranks that rounds nothing
        exactly = world == 2 and name != "LAMB"
        assert found["apart"] == 0.0 if exactly else found["apart"] < 1e-6, name
        assert sum(rank[name]["parts"] for rank in ranks) == found["whole"], name


@pytest.mark.parametrize("call", [fused_ranks.resumed, fused_ranks.checkpointed])
def test_a_checkpoint_goes_on_with_another_number_of_ranks(
    tmp_path: Path, call: Callable[..., Any]
) -> None:
    kept, other = str(tmp_path / "kept"), str(tmp_path / "other")
    [whole, _] = on_each_rank(call, tmp_path, 2, other, range(10), world=2)
    on_each_rank(call, tmp_path, 2, kept, range(5), world=2)
    ranks = on_each_rank(call, tmp_path, 3, kept, range(5, 10), world=3)
    for weights in ranks:
        np.testing.assert_allclose(weights, whole, rtol=0, atol=1e-5)
        assert np.array_equal(weights, ranks[0])


@pytest.mark.parametrize("world", [2, 3])
def test_weights_may_travel_rounded_from_masters_that_are_not(tmp_path: Path, world: int) -> None:
    for found in on_each_rank(fused_ranks.rounded_training, tmp_path, world, world=world):
        for claim in ("rounded", "masters", "changed", "returned"):
            assert found[claim], claim
        assert 0 < found["apart"] < 0.02, "of 20 steps in float32"


def test_bounded_training_loses_gradients_only(tmp_path: Path) -> None:
    file = tmp_path / "dlcpd.toml"
    file.write_text(
        '[daemon]\ncontrol_address = "127.0.0.1"\n'
        '[network]\npaths = [{ address = "127.0.0.1" }]\n[inject]\nloss = 0.05\nseed = 1\n'
    )
    ranks = on_each_rank(fused_ranks.bounded_training, tmp_path, str(file))
    assert np.array_equal(ranks[0]["weights"], ranks[1]["weights"])
    assert ranks[0]["waived"] + ranks[1]["waived"] > 0
    assert ranks[0]["steps"] == 12


def test_steps_leave_nothing_behind(tmp_path: Path) -> None:
    """`python -m tests.client.fused_growth 10000` is the long form."""
    for before, after in on_each_rank(fused_growth.counted, tmp_path, 2 * fused_growth.WARM):
        for name in ("descriptors", "threads", "descriptors of daemons"):
            assert after[name] <= before[name], name
        assert after["objects"] - before["objects"] < fused_growth.WARM, "fewer than one a step"


def test_the_example_runs_under_torchrun() -> None:
    example = examples.EXAMPLES / "train_fused.py"
    assert len(example.read_text().splitlines()) <= 80
    out = examples.output("train_fused.py", 2, timeout=110)
    losses = [float(line.split()[-1]) for line in out.splitlines() if "loss" in line]
    assert losses[-1] < 0.5 * losses[0]
    state, parameters = map(float, re.findall(r"(\S+) MB", out))
    assert state == parameters, "two states of half the parameters"
