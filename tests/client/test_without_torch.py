"""`dlcp_client.numpy` where there is no torch, and the backend where torch comes later."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import examples

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "jax_numpy.py"
IMPORTS = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def python(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env=IMPORTS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def ranks(world: int, store: Path, *arguments: str) -> list[str]:
    """What every rank printed."""
    processes = [
        subprocess.Popen(
            [sys.executable, str(HERE / "numpy_ranks.py"), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=IMPORTS | {"RANK": str(rank), "WORLD_SIZE": str(world), "DLCPD_STORE": str(store)},
        )
        for rank in range(world)
    ]
    try:
        ends = [process.communicate(timeout=110) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * world, ends
    return [out.strip() for out, _ in ends]


def test_its_import_never_imports_torch() -> None:
    assert python("import dlcp_client.numpy, sys; print('torch' in sys.modules)") == "False"


@pytest.mark.parametrize("first", ["import dlcp_client, torch", "import torch, dlcp_client"])
def test_torch_has_the_backend_whichever_is_imported_first(first: str) -> None:
    known = "print('dlcp' in torch.distributed.Backend.backend_list)"
    assert python(f"{first}; {known}") == "True"


FIRST = (
    "import dlcp_client; dlcp_client.connect",
    "import dlcp_client; dlcp_client.c10d",
    "from dlcp_client import c10d",
    "import dlcp_client.joining.torch_ranks",
    "import dlcp_client.c10d.process_group",
)


@pytest.mark.parametrize("first", FIRST)
def test_any_module_may_be_the_one_that_imports_torch(first: str) -> None:
    """Not complete yet itself, when the end of that import registers the backend."""
    known = "import torch; print('dlcp' in torch.distributed.Backend.backend_list)"
    assert python(f"{first}; {known}") == "True"


def test_what_needs_torch_says_so() -> None:
    """And the rest of the package is there."""
    program = (
        f"import sys; sys.path.insert(0, {str(HERE)!r}); import numpy_ranks\n"
        "sys.meta_path.insert(0, numpy_ranks.NoTorch())\n"
        "import dlcp_client; dlcp_client.bounded(0.01)\n"
        "try: dlcp_client.connect()\n"
        "except ImportError as exc: print(exc)"
    )
    assert python(program) == "No module named 'torch'"


def test_two_ranks_reduce_without_torch(tmp_path: Path) -> None:
    assert ranks(2, tmp_path / "store") == ["3000.0", "3000.0"]


def test_the_example_runs_without_torch(tmp_path: Path) -> None:
    first, *others = ranks(3, tmp_path / "store", str(EXAMPLE))
    assert others == ["", ""]
    errors = [float(line.split()[-1]) for line in first.splitlines() if "error" in line]
    assert errors[-1] < 0.001
    assert "3 ranks, gradients by" in first


def test_the_example_runs_under_torchrun(tmp_path: Path) -> None:
    store = {"DLCPD_STORE": str(tmp_path / "store")}
    out = examples.output(EXAMPLE.name, 2, environ=store, timeout=110)
    assert "2 ranks, gradients by" in out
