"""The suites that run over dlcp and over Gloo, and where their tests are."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

EXPECTED: Final = Path(__file__).with_name("expected")


@dataclass(frozen=True, slots=True)
class Suite:
    """Tests that other people wrote. A process runs one of `parts`."""

    title: str  # for documents
    kind: str  # which function of `child` runs it
    parts: tuple[str, ...]  # guises, modules, scripts or patterns of files, by kind
    ranks: int = 0  # of its groups; 0: the tests themselves say
    gloo_parts: tuple[str, ...] = ()  # over Gloo; none: the same

    @property
    def of_checkout(self) -> bool:
        """Whether the files are in PyTorch's repository alone."""
        return self.kind == "checkout"

    def parts_over(self, backend: str) -> tuple[str, ...]:
        """What to run over `backend`."""
        return self.gloo_parts if backend == "gloo" and self.gloo_parts else self.parts


# Names of backends that the suite's own skips know. What is skipped as one runs as the next.
_OURS: Final = ("dlcp", "gloo", "mpi")
_THEIRS: Final = ("gloo", "mpi")

SUITES: Final = {
    "distributed-2": Suite(
        "`distributed_test` of the wheel, 2 ranks", "wheel", _OURS, 2, _THEIRS),
    "distributed-3": Suite(
        "`distributed_test` of the wheel, 3 ranks", "wheel", _OURS, 3, _THEIRS),
    "accelerate": Suite(
        "`accelerate.test_utils.scripts`, 2 ranks", "scripts",
        ("test_ops", "test_sync", "test_script", "test_distributed_data_loop"), 2),
    "torchft": Suite(
        "`torchft.process_group_test`", "torchft", ("torchft.process_group_test",)),
    "checkpoint": Suite(
        "`test/distributed/checkpoint`", "checkout",
        ("checkpoint/test_*.py", "checkpoint/e2e/test_*.py", "checkpoint/fsdp/test_*.py")),
    "tensor": Suite(
        "`test/distributed/tensor`", "checkout",
        ("tensor/test_*.py", "tensor/parallel/test_*.py", "tensor/experimental/test_*.py",
         "tensor/debug/test_*.py", "test_device_mesh.py", "test_functional_api.py")),
    "c10d": Suite(
        "`test/distributed/test_c10d_*`", "checkout",
        ("test_c10d_gloo.py", "test_c10d_common.py", "test_c10d_object_collectives.py",
         "test_c10d_functional_native.py", "test_c10d_pypg.py", "test_pg_wrapper.py")),
    "fsdp": Suite("`test/distributed/fsdp`", "checkout", ("fsdp/test_*.py",)),
    "fully_shard": Suite(
        "`test/distributed/_composable`", "checkout",
        ("_composable/fsdp/test_*.py", "_composable/test_*.py",
         "_composable/test_composability/test_*.py")),
}  # fmt: skip


def expected_file(name: str) -> Path:
    """What is expected of the tests of a suite."""
    return EXPECTED / f"{name}.txt"
