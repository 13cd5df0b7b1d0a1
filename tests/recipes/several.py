"""A recipe several times on two ranks, each rank of each run in a process of its own.

    several.py RECIPE FOLDER OPTIONS...

Each OPTIONS is the command line of a run; what rank R prints in run N is in FOLDER/N.R. Imports
take longer than the trainings, so ranks are forked after them, with what torchrun tells its own.
"""

import importlib.util
import os
import shlex
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
import torch._dynamo  # optimizers do so at their first step, which takes seconds
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

RANKS: Final = 2
DESTROY: Final = dist.destroy_process_group
KEPT: Final[list[Any]] = []


def loaded(recipe: str) -> Any:
    """Its module, which has run nothing."""
    spec = importlib.util.spec_from_file_location("recipe", recipe)
    assert spec is not None and spec.loader is not None
    module = sys.modules["recipe"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def forked(what: Callable[[], object]) -> int:
    """The process that does it."""
    child = os.fork()
    if child == 0:
        what()
        sys.exit()
    return child


def store() -> tuple[int, int]:
    """Process and port of a store that is there before its ranks are, as torchrun's is."""
    ours, theirs = os.pipe()

    def serve() -> None:
        served = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        os.write(theirs, str(served.port).encode())
        signal.pause()

    process = forked(serve)
    os.close(theirs)
    with open(ours, "rb") as told:
        return process, int(told.read1(8))


def destroyed(group: Any = None) -> None:
    """Gloo's threads may hold the last reference to a group, whose end would then join itself."""
    KEPT.append(dist.group.WORLD)
    DESTROY(group)


def rank_of(module: Any, rank: int, options: str, port: int, output: Path) -> None:
    """One rank of a run."""
    os.environ.update(
        {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "GROUP_RANK": "0",
            "WORLD_SIZE": str(RANKS),
            "LOCAL_WORLD_SIZE": str(RANKS),
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": str(port),
            "TORCHELASTIC_RUN_ID": "none",
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": "0",
        }
    )
    torch.set_num_threads(1)
    os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT, 0o600), 1)
    dist.destroy_process_group = destroyed
    sys.argv = [str(module.__file__), *shlex.split(options)]
    module.main()


def run(module: Any, number: int, options: str, folder: Path) -> None:
    """One training. Raises: SystemExit when a rank has failed; the other is killed."""
    serving, port = store()
    ranks = {
        forked(partial(rank_of, module, r, options, port, folder / f"{number}.{r}")): r
        for r in range(RANKS)
    }
    try:
        while ranks:
            process, status = os.wait()
            rank = ranks.pop(process)
            if status:
                sys.exit(f"run {number}, {options!r}: rank {rank} ended with status {status}")
    finally:
        for process in (serving, *ranks):
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


def main() -> None:
    """All runs, one after the other."""
    recipe, folder, *runs = sys.argv[1:]
    module = loaded(recipe)
    for number, options in enumerate(runs):
        run(module, number, options, Path(folder))


if __name__ == "__main__":
    main()
