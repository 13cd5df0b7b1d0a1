"""PyTorch's own distributed suite, from the wheel, over dlcp as a third-party backend or Gloo."""

import os
import unittest
from typing import Any, Final

import torch

from dlcp_client import c10d

NAME: Final = c10d.NAME
TEST_TIMEOUT: Final = 150  # seconds; longer than the 60 s of the suite's own group timeout

# These tests take a model for CPU or CUDA by the backend's name, and have none for other names.
CHOOSES_MODEL_BY_NAME: Final = "test_accumulate_gradients_no_sync"


def suite_class(ranks: int, guise: str, backend: str = NAME) -> type[unittest.TestCase]:
    """The suite's TestCase for `ranks` processes. Once per process: it reads the environment.

    Some tests are for backends of certain names only, whatever others can do. `guise` is the
    name that the suite sees when it decides what to skip; `backend` runs in any case.
    """
    os.environ |= {
        "BACKEND": guise,
        "WORLD_SIZE": str(ranks),
        "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": str(TEST_TIMEOUT),
    }
    from torch.testing._internal.common_distributed import DistTestCases  # noqa: PLC0415

    # Where the suite asks whether a backend can do something, it knows PyTorch's own by name.
    for feature in ("ddp", "gpu", "plugin", "subgroup"):
        DistTestCases.backend_feature[feature].add(NAME)
    from torch.testing._internal.distributed import distributed_test as theirs  # noqa: PLC0415

    # What is skipped by name is decided by now; from here on the name is that of what runs.
    theirs.BACKEND = os.environ["BACKEND"] = backend

    class Conformance(theirs.TestDistBackend, theirs.DistributedTest._DistTestBase):  # noqa: SLF001
        def setUp(self) -> None:
            super().setUp()  # type: ignore[no-untyped-call]
            # Forked, not spawned as the suite does: importing takes longer than a test.
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        def run_test(self, test_name: str, parent_pipe: Any) -> None:
            assert torch.distributed.get_backend() == backend
            if test_name.startswith(CHOOSES_MODEL_BY_NAME):
                theirs.BACKEND = guise
            super().run_test(test_name, parent_pipe)

    return Conformance
