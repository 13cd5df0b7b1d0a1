import os
import socket
from dataclasses import replace
from typing import Any

import pytest

from dlcp_lab.bench.soak import (
    PRIVATE_SLACK,
    SHM_SLACK,
    Sample,
    Usage,
    bound,
    growth,
    shared_memory,
    usage,
)

QUIET = Usage(fds=10, threads=2, rss=50_000_000, private=30_000_000)
EARLY = Sample(QUIET, QUIET, QUIET, 1 << 24)


def test_nothing_grew() -> None:
    assert list(growth(EARLY, EARLY, "h")) == []


@pytest.mark.parametrize("part", ["control", "engine", "client"])
@pytest.mark.parametrize(
    ("name", "more"), [("fds", 1), ("threads", 1), ("private", PRIVATE_SLACK + 1)]
)
def test_growth_is_named(part: str, name: str, more: int) -> None:
    grown = replace(QUIET, **{name: getattr(QUIET, name) + more})
    parts: dict[str, Any] = {part: grown}
    [line] = growth(EARLY, replace(EARLY, **parts), "host1")
    assert line.startswith(f"host1: {name} of the {part} grew")


def test_shared_memory_may_not_grow_either() -> None:
    [line] = growth(EARLY, replace(EARLY, shm=EARLY.shm + SHM_SLACK + 1), "h")
    assert "shared memory" in line


def test_the_bound_is_base_plus_arena_plus_twice_what_is_in_flight() -> None:
    assert bound(EARLY) == 150_000_000 + (1 << 24) + 2 * 8 * 5_000_000


def test_usage_of_this_process() -> None:
    before = usage(os.getpid())
    with socket.socket():
        during = usage(os.getpid())
    assert during.fds == before.fds + 1
    assert before.threads >= 1
    assert before.rss > before.private > 0


def test_shared_memory_counts_a_memfd_once_and_what_it_occupies() -> None:
    before = shared_memory([os.getpid()])
    descriptor = os.memfd_create("test")
    other = os.dup(descriptor)
    try:
        os.ftruncate(descriptor, 1 << 30)
        assert shared_memory([os.getpid()]) == before
        os.pwrite(descriptor, b"x" * 8192, 0)
        assert shared_memory([os.getpid(), os.getpid()]) == before + 8192
    finally:
        os.close(descriptor)
        os.close(other)
