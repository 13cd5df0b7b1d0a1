"""PyTorch's own parallelism, unmodified over dlcp: results equal those of Gloo in the same run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.c10d import programs
from tests.c10d.worlds import over

BACKEND = "dlcp"
ROUNDED = {"ddp_fp16_hook": 1e-3}  # absolute tolerance of sums in float16


def assert_equal(size: int, found: Any, expected: Any, atol: float = 1e-5) -> None:
    """Bit for bit with two ranks; with more, sums may be added in another order."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if size == 2:
            np.testing.assert_array_equal(found[name], value, err_msg=name)
        else:
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=atol, err_msg=name)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", programs.ALL)
def test_results_equal_gloos(name: str, size: int, tmp_path: Path) -> None:
    program = programs.ALL[name]
    theirs = over("gloo", program, size, tmp_path)
    ours = over(BACKEND, program, size, tmp_path)
    for found, expected in zip(ours, theirs, strict=True):
        assert_equal(size, found, expected, ROUNDED.get(name, 1e-5))


def test_hsdp_of_two_by_two(tmp_path: Path) -> None:
    theirs = over("gloo", programs.hsdp, 4, tmp_path)
    ours = over(BACKEND, programs.hsdp, 4, tmp_path)
    for found, expected in zip(ours, theirs, strict=True):
        assert_equal(4, found, expected)


@pytest.mark.parametrize("size", [2, 3])
def test_checkpoints_saved_over_one_are_loaded_over_the_other(size: int, tmp_path: Path) -> None:
    results = {}
    for backend in ("gloo", BACKEND):
        folder = str(tmp_path / f"checkpoint-{backend}")
        results[backend] = over(backend, programs.checkpoint, size, tmp_path, folder)
    for found, expected in zip(results[BACKEND], results["gloo"], strict=True):
        assert_equal(size, found, expected)


@pytest.mark.parametrize("size", [2, 3])
def test_objects(size: int, tmp_path: Path) -> None:
    assert over(BACKEND, programs.objects, size, tmp_path) == over(
        "gloo", programs.objects, size, tmp_path
    )
