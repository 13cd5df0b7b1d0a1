"""The example under torchrun, beside the same training with averaged gradients."""

import re

import pytest

from tests import examples

RANKS, STEPS = 3, 30


@pytest.mark.timeout(240)  # seconds; it takes 20 s of CPU, on cores that others use as well
def test_the_example_learns_as_well_as_all_reduce() -> None:
    # top-k is the least that can be sent; test_gossip.py has the others
    out = examples.output("train_gossip.py", RANKS, "--steps", str(STEPS), "--codec", "top-k")
    accuracies = [float(found) for found in re.findall(r"accuracy (\S+),", out)]
    distances = [float(found) for found in re.findall(r"distance (\S+)", out)]
    assert len(accuracies) == RANKS and len(set(accuracies)) == 1, out
    assert accuracies[0] > examples.accuracy_of_all_reduce(RANKS, STEPS) - 0.05, out
    assert len(distances) == STEPS // 10 and all(0 < one < 100 for one in distances)
