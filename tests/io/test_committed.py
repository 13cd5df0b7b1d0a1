"""Memory that a client has not committed: found before the engine touches it, once and for good."""

import ctypes
import fcntl
import mmap
import os
import random
from collections.abc import Iterator

import numpy as np
import pytest

from dlcpd.contract.errors import ArenaFull, BadMessage
from dlcpd.io.clients import committed
from dlcpd.io.clients.committed import F_SEAL_FUTURE_WRITE, MAX_RUNS, PAGE, PIECE, Committed
from dlcpd.io.clients.memory import create_arena
from dlcpd.io.udp.mmsg import address
from dlcpd.requests.memory import Range

SIZE = 4 * PIECE


class Arena:
    """An arena that a client has mapped as well, and what the engine knows of it."""

    def __init__(self, size: int = SIZE) -> None:
        self.descriptor = create_arena(size)
        self.mapped = mmap.mmap(self.descriptor, size)  # the client's
        self.known = Committed(self.descriptor, address(np.frombuffer(self.mapped, np.uint8)))

    def commit(self, start: int, stop: int) -> None:
        for at in range(start // PAGE * PAGE, stop, PAGE):
            self.mapped[at] = 0

    def look(self, *ranges: tuple[int, int]) -> list[int]:
        """Bytes of each piece that was looked at."""
        return list(self.known.look([Range(*each, writes=False) for each in ranges], 7))

    def knows(self, start: int, stop: int) -> bool:
        return self.known.knows([Range(start, stop, writes=True)])

    @property
    def held(self) -> int:
        """Bytes of memory behind it."""
        return os.fstat(self.descriptor).st_blocks * 512


@pytest.fixture
def arena() -> Iterator[Arena]:
    made = Arena()
    yield made
    os.close(made.descriptor)


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (PAGE, 2 * PAGE), (PIECE - 64, PIECE + 64)])
def test_what_is_not_there_is_refused_by_name_and_not_touched(
    arena: Arena, start: int, stop: int
) -> None:
    with pytest.raises(ArenaFull, match=r"operation 7 uses bytes \d+\.\.\d+ of the arena, and"):
        arena.look((start, stop))
    assert arena.held == 0
    arena.commit(start, stop)
    arena.look((start, stop))
    assert arena.knows(start, stop)


def test_one_page_that_is_missing_is_found(arena: Arena) -> None:
    arena.commit(0, SIZE)
    hole = 2 * PIECE + 5 * PAGE
    os.posix_fallocate(arena.descriptor, 0, SIZE)
    punch(arena.descriptor, hole, PAGE)
    with pytest.raises(ArenaFull, match=f"byte {hole} has no memory behind it"):
        arena.look((0, SIZE))
    assert arena.known.runs == [(0, hole)]
    arena.look((0, hole), (hole + PAGE, SIZE))
    assert arena.known.runs == [(0, hole), (hole + PAGE, SIZE)]


def test_what_is_known_is_not_looked_at_again(arena: Arena) -> None:
    arena.commit(0, SIZE)
    assert sum(arena.look((100, PIECE), (2 * PIECE, SIZE))) == PIECE + SIZE - 2 * PIECE
    assert arena.look((100, PIECE), (2 * PIECE, SIZE)) == []
    assert arena.look((0, SIZE)) == [PIECE], "only what lies between"
    assert arena.knows(0, SIZE) and arena.known.runs == [(0, SIZE)]


def test_an_empty_range_needs_nothing(arena: Arena) -> None:
    assert arena.knows(SIZE, SIZE) and arena.look((64, 64)) == []


def test_what_was_found_stays_there(arena: Arena) -> None:
    """No hole is punched after the look, by any way there is; the client goes on writing."""
    arena.commit(0, PIECE)
    arena.look((0, PIECE))
    with pytest.raises(PermissionError):
        punch(arena.descriptor, 0, PAGE)
    with pytest.raises(PermissionError):
        arena.mapped.madvise(mmap.MADV_REMOVE, 0, PAGE)
    with pytest.raises(PermissionError):
        mmap.mmap(arena.descriptor, PAGE)  # another one to write to
    with pytest.raises(PermissionError):
        os.ftruncate(arena.descriptor, 0)
    arena.mapped.madvise(mmap.MADV_DONTNEED, 0, PIECE)
    assert arena.held == PIECE
    arena.mapped[:4] = b"more"
    os.posix_fallocate(arena.descriptor, PIECE, PIECE)
    arena.commit(PIECE, 2 * PIECE)
    arena.look((0, 2 * PIECE))


def test_another_engine_finds_it_sealed(arena: Arena) -> None:
    arena.commit(0, PIECE)
    arena.look((0, PIECE))
    fcntl.fcntl(arena.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)
    other = Committed(arena.descriptor, address(np.frombuffer(arena.mapped, np.uint8)))
    assert list(other.look([Range(0, PIECE, writes=True)], 1)) == [PIECE]


def test_a_client_that_keeps_the_seal_off_is_refused(arena: Arena) -> None:
    arena.commit(0, PIECE)
    fcntl.fcntl(arena.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)
    for _ in range(2):
        with pytest.raises(BadMessage, match="seals"):
            arena.look((0, PIECE))


def test_a_kernel_without_the_seal_serves_as_well(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committed, "F_SEAL_FUTURE_WRITE", 1 << 20)  # EINVAL, as before Linux 5.1
    arena.commit(0, PIECE)
    assert arena.look((0, PIECE)) == [PIECE]
    assert fcntl.fcntl(arena.descriptor, fcntl.F_GET_SEALS) & F_SEAL_FUTURE_WRITE == 0


@pytest.mark.parametrize("silent", [False, True], ids=["mincore", "no mincore"])
@pytest.mark.parametrize("seed", range(8))
def test_it_is_as_a_list_of_pages_says(
    arena: Arena, seed: int, *, silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages come one after the other, ranges are asked for at random."""
    if silent:
        monkeypatch.setattr(committed, "_mincore", lambda *_: -1)
    draw, there = random.Random(seed), np.zeros(SIZE // PAGE, bool)
    for _ in range(200):
        start = draw.randrange(0, SIZE - 64)
        stop = min(start + draw.choice((1, PAGE, 50 * PAGE, PIECE)), SIZE)
        pages = slice(start // PAGE, -(-stop // PAGE))
        if draw.random() < 0.5:
            arena.commit(start, stop)
            there[pages] = True
            continue
        try:
            arena.look((start, stop))
        except ArenaFull:
            assert not there[pages].all()
        else:
            assert there[pages].all()
            assert arena.knows(start, stop)
        for first, last in arena.known.runs:
            assert there[first // PAGE : last // PAGE].all()
        assert arena.held == there.sum() * PAGE


def test_runs_that_are_remembered_are_few() -> None:
    arena = Arena(3 * MAX_RUNS * PAGE)
    for number in range(0, 3 * MAX_RUNS, 2):
        arena.commit(number * PAGE, number * PAGE + 1)
        arena.look((number * PAGE, number * PAGE + 1))
    assert len(arena.known.runs) == MAX_RUNS
    arena.look((0, 1))  # one that was forgotten is found again
    os.close(arena.descriptor)


def punch(descriptor: int, start: int, size: int) -> None:
    """Raises: OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate(descriptor, 3, ctypes.c_long(start), ctypes.c_long(size)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
