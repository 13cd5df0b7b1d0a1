"""Memory is charged to the client that has it: none brings the engine's cgroup to its limit."""

import mmap
import subprocess
import sys
from collections.abc import Iterator

import pytest

from dlcpd.contract.collectives import COLLECTIVES
from dlcpd.contract.messages import Completed, Failed
from dlcpd.io.config import EngineConfig
from tests.attack.cgroups import MemoryGroup, memory_group
from tests.attack.resources import MB
from tests.attack.test_engine_survives import works
from tests.checks import Measured
from tests.io.engines import Job, ask
from tests.pages import ROOT

pytestmark = pytest.mark.executed  # their memory is measured

LIMIT = 600 << 20  # bytes of the engines' cgroup
SPARSE = 4 << 30
PIECE = 64 << 20  # bytes of an operation


@pytest.fixture
def group() -> Iterator[MemoryGroup]:
    with memory_group(LIMIT) as made:
        yield made


@pytest.fixture
def job(group: MemoryGroup) -> Iterator[Job]:
    def configure(rank: int) -> EngineConfig:
        return EngineConfig(host=f"host{rank}", paths=(("127.0.0.1", 0),))

    started = Job(2, configure)
    try:
        for engine in started.engines:
            group.add(engine.process.pid)
        works(started.ranks, 1)
        yield started
    finally:
        started.close()


def sizes(collective: str, count: int, at: int) -> dict[str, int]:
    """Elements in and out, where nothing lies in the first of them."""
    given, got = {
        "all_gather": (count // 2, count),
        "gather": (count // 2, count if at == 0 else 0),
        "scatter": (count if at == 0 else 0, count // 2),
        "reduce_scatter": (count, count // 2),
        "send": (count, 0),
        "receive": (0, count),
        "reduce": (count, count if at == 0 else 0),
    }.get(collective, (count, count))
    return {"input_count": given, "output_count": got}


def options(collective: str, rank: int, place: int) -> dict[str, object]:
    count = PIECE // 4
    root = 0 if collective in ("reduce", "broadcast", "gather", "scatter") else -1
    peer = 1 - rank if collective in ("send", "receive") else root
    made = {"collective": collective, "peer": peer, **sizes(collective, count, rank)}
    same = made["input_count"] == made["output_count"]
    output = place if same else place + PIECE
    return made | {"input": place, "output": output, "in_place": same, "deadline": 5.0}


def charged(group: MemoryGroup, before: int) -> str:
    return f"+{max(group.used - before, 0) / MB:.0f} MB charged to the engines"


@pytest.mark.check(121, "operations over memory that a client has not committed, all collectives")
@pytest.mark.parametrize("collective", [c for c in COLLECTIVES if c != "barrier"])
def test_a_sparse_arena(job: Job, group: MemoryGroup, collective: str, measured: Measured) -> None:
    """4 GiB of it, in a cgroup of 600 MiB: each is refused, on the rank that asks."""
    sparse, before = [job.open(rank, 2, SPARSE) for rank in range(2)], group.used
    for number, place in enumerate(range(0, SPARSE - PIECE, 2 * PIECE), 1):
        for at, rank in enumerate(sparse):
            rank.send(ask(number, **options(collective, at, place)))
    for at, rank in enumerate(sparse):
        lacking = sizes(collective, 1 << 10, at)
        if any(lacking.values()):
            told = rank.outcome(1)
            assert isinstance(told, Failed) and told.code == "arena_full", told
            assert "operation 1 uses bytes" in told.text and "no memory behind it" in told.text
    assert group.used - before < 64 * MB
    works(job.ranks, 2)
    assert group.killed == 0
    measured(f"{collective}: {charged(group, before)}")


@pytest.mark.check(121, "a client that has committed its memory is served, and none is ours")
def test_memory_of_the_client(job: Job, group: MemoryGroup, measured: Measured) -> None:
    """More than the engines' cgroup may have; the client cannot take it back afterwards."""
    ranks, before, count = [job.open(rank, 2, SPARSE) for rank in range(2)], group.used, PIECE // 4
    places = range(0, LIMIT + 2 * PIECE, PIECE)
    for number, place in enumerate(places, 1):
        for rank in ranks:
            rank.submit(number, count=count, input=place, output=place, deadline=60.0)
        for rank in ranks:
            assert isinstance(rank.outcome(number), Completed)
    assert group.used - before < 128 * MB
    for rank in ranks:
        with pytest.raises(PermissionError):
            rank.mapped.madvise(mmap.MADV_REMOVE, 0, PIECE)
    works(job.ranks, 2)
    assert group.killed == 0
    measured(charged(group, before))


FILLING = """
import os, sys
from dlcp_client.arena.memory import SharedArena
from dlcpd.contract.errors import ArenaFull
sys.stdin.readline()
descriptor = os.memfd_create("arena")
os.ftruncate(descriptor, 1 << 30)
options = {} if sys.argv[1] == "looks" else {"left": lambda: None}
arena, held = SharedArena(descriptor, 1 << 30, **options), []
try:
    while True:
        held.append(arena.memory(16 << 20))
except ArenaFull as exc:
    print(exc)
"""


@pytest.mark.check(126, "a control group without room for an arena is named before it kills")
def test_a_control_group_that_is_too_small_is_named(measured: Measured) -> None:
    said = {}
    for how in ("looks", "does not look"):
        with memory_group(200 << 20) as group:
            child = subprocess.Popen(
                [sys.executable, "-c", FILLING, how],
                cwd=ROOT,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            group.add(child.pid)
            said[how], _ = child.communicate("go\n", timeout=60)
            assert bool(group.killed) is (how == "does not look"), said
    assert "the kernel kills a process of the control group" in said["looks"]
    assert f"is {200 << 20} B" in said["looks"]
    measured("of a group of 200 MB: named; without a look, killed")
