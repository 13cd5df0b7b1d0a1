"""accelerate's own test scripts, as `accelerate test` and its suite run them, under torchrun.

    torchrun --nproc-per-node 2 tests/conformance/scripts.py dlcp test_ops

A rank makes the process group first; accelerate takes the one that there is.
"""

import faulthandler
import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.conformance.outcomes import Outcome

PACKAGE: Final = "accelerate.test_utils.scripts"
LIMIT: Final = 300.0  # seconds for a script; 20 to 60 on a free machine
LAST_WORDS: Final = 20.0  # seconds for torchrun to end its ranks
ROOT: Final = Path(__file__).parents[2]


def outcome(script: str, backend: str, ranks: int) -> Outcome:
    """Run a script on all ranks; it passes where every rank ends with status 0."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(ranks),
        "-m",
        "tests.conformance.scripts",
        backend,
        script,
    ]
    environment = os.environ | {
        "ACCELERATE_USE_CPU": "true",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
    }
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        said, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.terminate()  # torchrun ends its ranks
        try:
            said, _ = process.communicate(timeout=LAST_WORDS)
        except subprocess.TimeoutExpired:
            process.kill()
            said = ""
        return Outcome(script, "fail", f"did not end within {LIMIT:g} s\n{said}")
    return Outcome(
        script, "fail" if process.returncode else "pass", said if process.returncode else ""
    )


def main() -> None:
    """One rank."""
    import torch.distributed as dist  # noqa: PLC0415  # importing torch takes seconds

    import dlcp_client  # noqa: F401, PLC0415  # registers the backend

    backend, script = sys.argv[1:]
    sys.argv[1:] = []
    faulthandler.dump_traceback_later(LIMIT - LAST_WORDS)  # where it hangs
    dist.init_process_group(backend)
    # Gloo's threads may hold the last reference to a group, whose end would then join themselves.
    kept = dist.group.WORLD
    importlib.import_module(f"{PACKAGE}.{script}").main()
    if dist.is_initialized():
        assert dist.get_backend() == backend
        dist.destroy_process_group()
    del kept


if __name__ == "__main__":
    main()
