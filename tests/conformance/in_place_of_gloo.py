"""Has programs that ask torch.distributed for Gloo get a backend that we choose."""

import inspect
import sys
import unittest
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.testing._internal import common_distributed

from dlcp_client import c10d

GLOO: Final = "gloo"
JOB: Final = "init_process_group"  # which asks for all default backends where none is named
ASK: Final = (JOB, "new_group", "new_subgroups", "new_subgroups_by_enumeration")
_GLOO: Final[Any] = dist.ProcessGroupGloo


def install(backend: str) -> None:
    """In this process and those that it forks: `backend` is in Gloo's place, and tests fork.

    With "gloo" itself nothing but the start of processes is changed, and what the tests ask of the
    machine, so that verdicts compare.
    """
    # Importing torch and a file of tests takes longer than most tests.
    torch.multiprocessing.set_start_method("fork", force=True)
    tests: Any = common_distributed.MultiProcessTestCase
    tests._spawn_processes = _fork_processes  # noqa: SLF001  # of PyTorch
    # Most tests of DTensor and of checkpoints ask for accelerators that they do not need: Gloo's
    # verdict tells them from those that do.
    common_distributed.skip_if_lt_x_gpu = _anywhere
    if backend == GLOO:
        return
    common_distributed.DistTestCases.backend_feature["plugin"].add(backend)
    for name in ASK:
        function = getattr(distributed_c10d, name)
        _replace(name, function, _asking(function, backend))
    _replace("ProcessGroupGloo", dist.ProcessGroupGloo, Group)
    group: Any = c10d.ProcessGroup
    group.create_device = Group.create_device  # tests make one of the group's backend, and drop it


class Group:
    """In the place of the class ProcessGroupGloo: makes groups of dlcp, whose options are those of
    Gloo."""

    def __new__(
        cls, store: Any, rank: int, size: int, options: Any = None, timeout: Any = None
    ) -> Any:
        limit = getattr(options, "_timeout", options) or timeout or timedelta(minutes=30)
        return c10d.process_group(store, rank, size, limit)

    _Options = _GLOO._Options  # noqa: SLF001  # tests make some
    create_device = staticmethod(_GLOO.create_device)
    create_default_device = staticmethod(_GLOO.create_default_device)


def _replace(name: str, old: Any, new: Any) -> None:
    """In every module that has imported it."""
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(name) is old:
            setattr(module, name, new)


def _anywhere(*_count: Any, **_options: Any) -> Callable[[Any], Any]:
    return lambda test: test


def _fork_processes(case: Any) -> None:
    case._start_processes(  # noqa: SLF001  # of PyTorch
        torch.multiprocessing.get_context("fork").Process
    )


def _asking(function: Callable[..., Any], backend: str) -> Callable[..., Any]:
    """`function` of torch.distributed, where Gloo's name stands for `backend`."""
    form = inspect.signature(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = form.bind(*args, **kwargs)
        named = given.arguments.get("backend")
        if isinstance(named, str):
            given.arguments["backend"] = named.lower().replace(GLOO, backend)
        elif function.__name__ == JOB:
            given.arguments["backend"] = backend
        return function(*given.args, **given.kwargs)

    return call


def go_on_after_failure(case: type[unittest.TestCase]) -> None:
    """Give a class whose processes serve all its tests new ones after a failed test.

    PyTorch's skips what comes after a failure, which would hide the verdicts of these tests.
    """
    shared: Any = case
    if not getattr(case, "poison_pill", False):
        return
    for process in shared.processes:
        process.kill()
        process.join()
    shared.poison_pill = shared._processes_spawned = False  # noqa: SLF001
