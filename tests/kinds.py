"""Tests that start Python processes are marked `processes`: `make test` leaves them out.

A process of Python costs half a second to three seconds of CPU before its first line. A module is
marked if it, or a module of tests that it imports, imports what starts processes. A test that
starts one without the mark fails, so the marks are complete.
"""

import ast
import multiprocessing.process
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

# What `make test` selects; test_makefile.py compares.
QUICK: Final = "main_path or not (processes or netns or heavy)"
ROOT: Final = Path(__file__).parents[1]
STARTERS: Final = ("subprocess", "multiprocessing", "dlcpd.starter", "dlcp_lab.ranks",
                   "dlcp_lab.faults", "asyncio.subprocess")  # fmt: skip
# Folders whose tests all belong to `make test-all`: real machines, browsers, switches, attacks.
WHOLE: Final = ("attack", "conformance", "deploy", "faults", "page", "path_mtu", "switches")
# Folders whose other tests only compute: `make computing` runs them, and `make processes` does not.
COMPUTING: Final = ("language", "simulation", "spmd")
# With processes, and in `make test` all the same: pages and commands, a daemon, an engine, ranks of
# a training, the backend, FSDP2, numpy, a parameter server.
MAIN_PATHS: Final = (
    "c10d/test_collectives.py", "c10d/test_forms.py", "c10d/test_fsdp.py",
    "client/test_connect.py", "client/test_cross_step.py", "client/test_ddp.py",
    "client/test_new_collective.py", "client/test_numpy.py",
    "ctl/test_arguments.py", "ctl/test_stop.py", "cli/test_extensions.py", "ctl/test_imports.py",
    "daemon/test_two_hosts.py", "io/test_engine.py", "lab/test_arguments.py",
    "lab/ranks/test_digits.py", "lab/ranks/test_reference.py", "server/test_training.py",
    "tooling/test_dashboards.py", "tooling/test_documents.py", "tooling/test_troubleshooting.py",
    "tooling/test_words.py",
)  # fmt: skip
# Fields of a syntax tree that hold statements, or what holds statements.
BLOCKS: Final = ("body", "orelse", "finalbody", "handlers", "cases")
OURS: Final = ("dlcpd", "dlcpctl", "switchcfg", "torchrun")  # commands that are Python
STARTED: Final = "tests.process"  # audited: multiprocessing starts a process


class _Running:
    """The test under way, where it must not start a process."""

    item: pytest.Item | None = None


@cache
def _imports(file: Path) -> frozenset[str]:
    found: set[str] = set()
    left: list[ast.AST] = [ast.parse(file.read_text())]
    while left:
        node = left.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        for block in BLOCKS:  # not into expressions: they import nothing, and are most nodes
            left += getattr(node, block, ())
    return frozenset(found)


@cache
def _starts_processes(file: Path) -> bool:
    """Whether a module of tests imports what starts processes; circles count as what they reach."""
    seen, left = {file}, [file]
    while left:
        for name in _imports(left.pop()):
            if name.startswith(STARTERS):
                return True
            below = ROOT / (name.replace(".", "/") + ".py")
            if name.startswith("tests.") and below.is_file() and below not in seen:
                seen.add(below)
                left.append(below)
    return False


def _is_python(command: object) -> bool:
    name = Path(str(command)).name
    return name.startswith("python") or name in OURS


def _audit(event: str, arguments: tuple[Any, ...], running: type[_Running] = _Running) -> None:
    """`running`: names of this module are gone when Python ends, and Python goes on calling."""
    if running.item is None or event not in ("subprocess.Popen", "os.posix_spawn", STARTED):
        return
    if event != STARTED:
        command = arguments[0] or arguments[1][0]
        if not _is_python(command):
            return
    name, running.item = running.item.nodeid, None
    raise RuntimeError(f"{name} starts a process: mark it `processes`")


def _announced(start: Any) -> Any:
    def started(process: multiprocessing.process.BaseProcess) -> None:
        sys.audit(STARTED)
        start(process)

    return started


def pytest_configure() -> None:
    multiprocessing.process.BaseProcess.start = _announced(  # type: ignore[method-assign]  # watched
        multiprocessing.process.BaseProcess.start
    )
    sys.addaudithook(_audit)


@cache
def _kind(module: Path) -> tuple[bool, bool]:
    """Whether all tests of a module start processes, and whether it is a main path."""
    place, conftest = module.relative_to(ROOT / "tests"), module.with_name("conftest.py")
    starts = (
        place.parts[0] in WHOLE
        or _starts_processes(module)
        or (conftest.is_file() and _starts_processes(conftest))
    )
    return starts, place.as_posix() in MAIN_PATHS


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make test` does not import a module that it would leave out as a whole."""
    if config.getoption("markexpr") != QUICK:
        return None
    if collection_path.parent == ROOT / "tests" and collection_path.name in WHOLE:
        return True
    if not collection_path.match("tests/*/**/test_*.py"):
        return None
    return _kind(collection_path) == (True, False) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        starts, main = _kind(item.path)
        if starts or item.get_closest_marker("processes"):
            item.add_marker(pytest.mark.processes)
            if main:
                item.add_marker(pytest.mark.main_path)
        elif item.path.relative_to(ROOT / "tests").parts[0] in COMPUTING:
            item.add_marker(pytest.mark.computing)
    # Long ones first: a worker that begins one last would work alone at the end.
    items.sort(key=lambda item: item.get_closest_marker("heavy") is None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    _Running.item = None if item.get_closest_marker("processes") else item
    try:
        return (yield)
    finally:
        _Running.item = None
