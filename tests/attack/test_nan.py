"""Check 15: NaNs of any payload, on CPUs and data paths that differ, are no divergence."""

import os
from collections.abc import Iterator

import numpy as np
import pytest

from dlcpd import starter
from dlcpd.contract.messages import Completed
from dlcpd.io.config import EngineConfig
from tests.checks import Measured
from tests.io.engines import ENGINE, Job

COUNT = 513  # elements: one step, in which every rank computes the whole result
BITS = {"float32": np.uint32, "float64": np.uint64, "float16": np.uint16}
NANS = {
    "float32": (0x7FC00001, 0xFFC01234, 0x7F800001),
    "float64": (0x7FF8000000000001, 0xFFF8000000001234, 0x7FF0000000000001),
    "float16": (0x7E01, 0xFE12, 0x7C01),
}
# An older CPU's: rank 0's engine does without what numpy chooses at run time.
OLDER = (
    "/usr/bin/env", "NPY_DISABLE_CPU_FEATURES=AVX512F AVX512CD AVX512_SKX AVX2 FMA3",
    "PYTHONWARNINGS=ignore", *starter.command("dlcpd.io.engine"),
)  # fmt: skip


@pytest.fixture
def job() -> Iterator[Job]:
    """Rank 0 with numpy of an older CPU, the others as they are, one of them in C."""
    ways = ("numpy", "auto", "numpy")
    made = Job(
        3,
        lambda rank: EngineConfig(digest_every=1, data_path=ways[rank]),
        OLDER if os.path.exists(OLDER[0]) else ENGINE,
    )
    yield made
    made.close()


@pytest.mark.check(15, "NaN payloads, with CPU features off on one rank: equal replicas")
def test_nans_of_different_payloads(job: Job, measured: Measured) -> None:
    number = 0
    for dtype, nans in NANS.items():
        for op in ("sum", "avg", "product", "min", "max"):
            number += 1
            parts = [np.full(COUNT, nan, BITS[dtype]).view(dtype) for nan in nans]
            for rank, part in enumerate(parts):
                part[rank::7] = rank + 1  # where some are numbers, the order of the others counts
            outcomes = job.all_reduce(number, parts, dtype=dtype, reduce=op)
            assert all(isinstance(outcome, Completed) for outcome in outcomes), outcomes
            results = {rank.tensor(0, COUNT, dtype).tobytes() for rank in job.ranks}
            assert len(results) == 1, (dtype, op)
            result = np.frombuffer(results.pop(), dtype)
            assert np.isnan(result).any()
            canonical = np.array(np.nan, dtype).view(BITS[dtype])
            assert (result.view(BITS[dtype])[np.isnan(result)] == canonical).all()
    measured(f"{number} operations of three engines, all equal")
