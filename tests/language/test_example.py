"""The example under torchrun: two schedules, explained, with equal weights."""

import re

import pytest

from tests import examples


@pytest.mark.timeout(240)  # seconds; it takes 10 s of CPU, on cores that others use as well
def test_the_example_explains_and_compares() -> None:
    out = examples.output(
        "fused_program.py", 2, "--elements", "300001", "--steps", "3", "--kernel", "eager"
    )
    assert re.findall(r"differ by (\S+)", out) == ["0.0e+00", "0.0e+00"], out
    state = [int(found.replace(",", "")) for found in re.findall(r"([\d,]+) bytes of state", out)]
    assert state[0] == 2 * 4 * 300001
    assert abs(state[1] - state[0] / 2) < 2048
    assert "elementwise + all_gather" in out
    assert "fused_program.py" in out
