"""The examples for other libraries run with those libraries, where they are installed."""

import re

import pytest

from tests import examples


@pytest.mark.parametrize("library", ["lightning", "accelerate"])
def test_gradients_of_other_libraries_trainers_go_through_dlcpd(library: str) -> None:
    pytest.importorskip({"lightning": "pytorch_lightning"}.get(library, library))
    out = examples.output(f"train_{library}.py", 2, timeout=150)
    assert "30 steps, 2.37 MB of each through dlcpd; " in out
    assert "59% of those bytes bounded: " in out and "all 2 ranks: " in out
    loss = re.search(r"loss ([0-9.]+) after 30 steps", out)
    assert loss is not None and float(loss[1]) < 0.6  # answers have a variance of 1
