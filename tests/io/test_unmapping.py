"""Memory of sessions that have ended is given back, by a thread, when nobody uses it any more."""

import gc
import mmap
import os
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dlcpd.contract.messages import Completed
from dlcpd.io.clients import unmapping
from dlcpd.io.clients.memory import create_arena
from dlcpd.io.config import EngineConfig
from dlcpd.io.udp.mmsg import address
from tests.io.engines import PATIENCE, Job

SIZE = 1 << 20


def occupied(descriptor: int) -> int:
    """Bytes of memory behind a memfd."""
    return os.fstat(descriptor).st_blocks * 512


def is_mapped(at: int) -> bool:
    return f"{at:x}-" in Path("/proc/self/maps").read_text()


def test_it_waits_for_the_last_user_and_frees_what_nobody_else_has() -> None:
    arena = create_arena(SIZE)
    memory = mmap.mmap(arena, SIZE)
    array = np.frombuffer(memory, np.uint8)
    array[:] = 7
    at = address(array)
    thread = unmapping.give_back(memory, at, arena)
    time.sleep(3 * unmapping.LOOK)
    assert thread.is_alive()
    assert is_mapped(at)
    assert (array == 7).all(), "who still uses it loses nothing"
    del array
    thread.join(10.0)
    assert not thread.is_alive()
    assert memory.closed
    assert not is_mapped(at)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(arena)


def test_what_a_client_still_has_stays_with_it() -> None:
    arena = create_arena(SIZE)
    memory, other = mmap.mmap(arena, SIZE), os.dup(arena)
    try:
        memory[:4] = b"kept"
        at = address(np.frombuffer(memory, np.uint8))
        unmapping.give_back(memory, at, arena).join(10.0)
        assert memory.closed
        assert os.pread(other, 4, 0) == b"kept"
        assert occupied(other) > 0
    finally:
        os.close(other)


def test_what_is_in_cycles_does_not_keep_it() -> None:
    """Sessions are, and an engine without work never collects them."""

    class Session:
        def __init__(self, array: NDArray[np.uint8]) -> None:
            self.array, self.itself = array, self

    arena = create_arena(SIZE)
    memory = mmap.mmap(arena, SIZE)
    session = Session(np.frombuffer(memory, np.uint8))
    at = address(session.array)
    gc.disable()
    try:
        thread = unmapping.give_back(memory, at, arena)
        del session
        thread.join(10.0)
        assert not thread.is_alive()
        assert memory.closed
    finally:
        gc.enable()


def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unmapping, "PATIENCE", 0.0)
    arena = create_arena(SIZE)
    memory = mmap.mmap(arena, SIZE)
    array = np.frombuffer(memory, np.uint8)
    thread = unmapping.give_back(memory, address(array), arena)
    thread.join(10.0)
    assert not thread.is_alive()
    assert not memory.closed


def test_the_arena_of_a_client_that_dies_goes_though_nothing_else_happens() -> None:
    """The engine sleeps from then on, and what its last event was about is forgotten."""
    job = Job(1, lambda rank: EngineConfig(host=f"host{rank}"))
    try:
        job.ranks[0].submit(1)
        assert isinstance(job.ranks[0].outcome(1), Completed)
        pid = job.engines[0].process.pid
        job.die(job.ranks[0])
        job.close_left(0)
        until = time.monotonic() + PATIENCE
        while arenas(pid) and time.monotonic() < until:
            time.sleep(0.05)
        assert arenas(pid) == 0
    finally:
        job.close()


def arenas(pid: int) -> int:
    """How many a process has mapped."""
    return Path(f"/proc/{pid}/maps").read_text().count("dlcpd-arena")


def test_the_arena_of_an_ended_session_goes_though_another_one_is_busy() -> None:
    """What timers were set for, an hour from now, holds nothing back."""
    job = Job(2, lambda rank: EngineConfig(host=f"host{rank}", peer_timeout=60.0))
    try:
        job.ranks[0].submit(1, deadline=60.0)  # and waits for the other rank
        others = [job.open(rank, session=2) for rank in range(2)]
        for rank in others:
            rank.submit(1, deadline=3600.0)
        assert all(isinstance(rank.outcome(1), Completed) for rank in others)
        pid = job.engines[0].process.pid
        assert arenas(pid) == 2
        for number, rank in enumerate(others):
            job.die(rank)
            job.close_left(number, session=2)
        until = time.monotonic() + PATIENCE
        while arenas(pid) > 1 and time.monotonic() < until:
            time.sleep(0.05)
        assert arenas(pid) == 1
    finally:
        job.close()
