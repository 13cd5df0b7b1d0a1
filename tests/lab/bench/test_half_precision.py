"""Trainings in 16-bit floats, a short one of each."""

import pytest

from dlcp_lab.bench.half_precision import HEADER, trained

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_row_for_each_way(dtype: str) -> None:
    rows = [dict(zip(HEADER, row, strict=True)) for row in trained(dtype, seeds=1, steps=40)]
    assert [row["over"] for row in rows] == ["gloo", "exact", "bounded"]
    gloo, exact, bounded = rows
    assert gloo["loss"] == exact["loss"]
    assert gloo["skipped"] == exact["skipped"] == bounded["skipped"]
    assert exact["waived"] == 0 < bounded["waived"]
    assert float(bounded["loss"]) == pytest.approx(float(exact["loss"]), rel=0.05)
