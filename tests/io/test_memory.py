"""The arena's memory."""

import fcntl
import mmap
import os

import pytest

from dlcpd.contract.errors import ArenaFull
from dlcpd.io.clients.memory import create_arena
from tests.descriptors import open_descriptors


def test_an_arena_is_shared_sparse_and_sealed() -> None:
    size = 1 << 30
    descriptor = create_arena(size)
    try:
        assert os.fstat(descriptor).st_size == size
        assert os.fstat(descriptor).st_blocks == 0
        for length in (size - 4096, size + 4096, 0):
            with pytest.raises(PermissionError):
                os.ftruncate(descriptor, length)
        os.posix_fallocate(descriptor, 0, 4096)
        with mmap.mmap(descriptor, 4096), pytest.raises(OSError, match="busy"):  # the engine's
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
        with mmap.mmap(descriptor, 4096) as one, mmap.mmap(descriptor, 4096) as other:
            one[:2] = b"hi"
            assert other[:2] == b"hi"
        assert not os.get_inheritable(descriptor)
    finally:
        os.close(descriptor)


def test_an_arena_that_cannot_be_made_is_an_error_and_leaks_nothing() -> None:
    before = open_descriptors()
    with pytest.raises(ArenaFull, match="no shared memory"):
        create_arena(-1)
    assert open_descriptors() == before
