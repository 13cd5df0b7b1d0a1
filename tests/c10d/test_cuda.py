"""The backend and the hooks with tensors of a GPU over real daemons; also on the CPU.

A fake device shows races (test_device.py); this shows that CUDA's calls do what it stands for.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.c10d import device_programs
from tests.c10d.worlds import Program, over

CUDA = pytest.param(
    "cuda",
    marks=[
        pytest.mark.cuda,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="this torch finds no GPU"),
    ],
)
DEVICES = pytest.mark.parametrize("device", ["cpu", CUDA])
CHECKED: tuple[Program, ...] = (
    device_programs.behind_kernels,
    device_programs.reused_memory,
    device_programs.checkpoint,
)


@DEVICES
def test_collectives_are_gloos_of_the_cpu_bit_for_bit(device: str, tmp_path: Path) -> None:
    gloos = over("gloo", device_programs.collectives, 2, tmp_path, "cpu")
    ours = over("dlcp", device_programs.collectives, 2, tmp_path, device)
    for found, expected in zip(ours, gloos, strict=True):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert np.array_equal(found[name], value), name


@DEVICES
@pytest.mark.parametrize("program", CHECKED)
def test_memory_and_order(device: str, program: Program, tmp_path: Path) -> None:
    over("dlcp", program, 2, tmp_path, device)


@DEVICES
def test_trainings_have_equal_replicas_and_exact_ones_equal_bits(
    device: str, tmp_path: Path
) -> None:
    first, second = over("dlcp", device_programs.trainings, 2, tmp_path, device)
    for name, value in first.items():
        assert np.array_equal(value, second[name]), name
        assert np.isfinite(value).all(), name
        way, _, parameter = name.rpartition(" ")
        if way in ("exact", "cross_step"):
            assert np.array_equal(value, first[f"group {parameter}"]), name
        if way == "fsdp exact":
            assert np.array_equal(value, first[f"fsdp {parameter}"]), name


@DEVICES
def test_a_profiler_shows_the_ranges(device: str, tmp_path: Path) -> None:
    for names in over("dlcp", device_programs.shown, 2, tmp_path, device):
        assert {"dlcp:all_reduce", "dlcp:submit", "dlcp:wait"} <= set(names)


@pytest.mark.parametrize("device", [CUDA])
def test_nvtx_has_the_ranges(device: str, tmp_path: Path) -> None:
    assert over("dlcp", device_programs.under_nvtx, 2, tmp_path, device) == [True, True]
