"""Tensors in the arena: where they lie, how long, and what happens when there is no memory."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from dlcp_client.arena.memory import COMMIT_STEP, SharedArena
from dlcp_client.arena.tensors import TENSORS
from dlcpd.contract.arena import ALIGNMENT
from dlcpd.contract.errors import ArenaFull

SIZE = 4 * COMMIT_STEP


class Memory:
    """An arena and the descriptor it owns."""

    def __init__(self, size: int = SIZE) -> None:
        self.descriptor = os.memfd_create("arena")
        os.ftruncate(self.descriptor, size)
        self.arena = SharedArena(self.descriptor, size)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return TENSORS.empty(self.arena, shape, dtype)

    def committed(self) -> int:
        """Bytes of memory behind the file."""
        return os.fstat(self.descriptor).st_blocks * 512


@pytest.fixture
def memory() -> Iterator[Memory]:
    made = Memory()
    yield made
    made.arena.close()


def test_tensors_have_shape_dtype_and_room_of_their_own(memory: Memory) -> None:
    a = memory.empty((3, 5), torch.bfloat16)
    b = memory.empty((), torch.int64)
    a.fill_(1)
    b.fill_(7)
    assert (a.shape, a.dtype, b.shape) == ((3, 5), torch.bfloat16, ())
    assert bool((a == 1).all())
    assert memory.arena.offset_of(a.data_ptr()) == 0
    assert memory.arena.offset_of(b.data_ptr()) == ALIGNMENT


def test_the_other_side_sees_what_is_written(memory: Memory) -> None:
    tensor = memory.empty((4,), torch.int32)
    tensor.copy_(torch.tensor([1, 2, 3, 4]))
    data = os.pread(memory.descriptor, 16, memory.arena.offset_of(tensor.data_ptr()))
    assert data == b"".join(i.to_bytes(4, "little") for i in (1, 2, 3, 4))


def test_a_region_is_free_when_the_last_view_is_gone(memory: Memory) -> None:
    tensor = memory.empty((1024,), torch.float32)
    view = tensor.view(32, 32)[3]
    del tensor
    gc.collect()
    assert memory.arena.used == ALIGNMENT
    del view
    assert memory.arena.used == 0


def test_low_memory_is_used_again_first(memory: Memory) -> None:
    for _ in range(100):
        tensor = memory.empty((SIZE // 8,), torch.float32)
        assert memory.arena.offset_of(tensor.data_ptr()) == 0
        del tensor
    assert memory.committed() == SIZE // 2


@pytest.mark.parametrize("populates", [True, False], ids=["populated", "an older kernel"])
def test_the_engine_finds_all_of_a_tensor_committed(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, *, populates: bool
) -> None:
    if not populates:
        monkeypatch.setattr("dlcp_client.arena.memory._POPULATE_WRITE", 1 << 20)  # EINVAL
    tensor = memory.empty((SIZE // 8,), torch.float32)
    assert os.lseek(memory.descriptor, 0, os.SEEK_HOLE) >= tensor.nbytes


def test_only_what_the_engine_takes_is_reduced_in_place(memory: Memory) -> None:
    tensor = memory.empty((64,), torch.float32)

    def can(where: torch.Tensor) -> bool:
        return memory.arena.offset_of(where.data_ptr()) >= 0

    assert can(tensor)
    assert can(tensor[16:])  # 64 bytes on
    assert not can(tensor[1:])
    assert not can(torch.zeros(64))
    above = Memory()
    assert not can(above.empty((64,), torch.float32))
    above.arena.close()


def test_an_empty_tensor_takes_no_room(memory: Memory) -> None:
    assert memory.empty((0, 3), torch.float32).shape == (0, 3)
    assert memory.arena.used == 0


def test_a_full_arena_says_so_and_recovers(memory: Memory) -> None:
    first = memory.empty((SIZE // 2,), torch.uint8)
    with pytest.raises(ArenaFull, match="has no room for"):
        memory.empty((SIZE // 2 + 1,), torch.uint8)
    del first
    assert memory.empty((SIZE,), torch.uint8).numel() == SIZE


def test_memory_is_committed_in_steps_before_it_is_used(memory: Memory) -> None:
    assert memory.committed() == 0
    small = memory.empty((1,), torch.float32)
    assert memory.committed() == COMMIT_STEP
    large = memory.empty((COMMIT_STEP + 1,), torch.uint8)
    assert memory.committed() == 2 * COMMIT_STEP
    del small, large


def test_the_last_step_ends_with_the_arena() -> None:
    memory = Memory(COMMIT_STEP + ALIGNMENT)
    tensor = memory.empty((COMMIT_STEP + 1,), torch.uint8)
    assert memory.committed() == COMMIT_STEP + ALIGNMENT
    del tensor
    memory.arena.close()


def test_memory_that_cannot_be_had_is_an_error_and_not_a_crash(memory: Memory) -> None:
    kept = memory.empty((COMMIT_STEP,), torch.uint8)
    good = os.dup(memory.descriptor)
    bad = os.open("/dev/null", os.O_RDONLY)  # the kernel refuses to allocate there
    os.dup2(bad, memory.descriptor)
    with pytest.raises(ArenaFull, match=f"no memory for {COMMIT_STEP} B more of the arena"):
        memory.empty((16,), torch.float32)
    assert memory.arena.used == COMMIT_STEP
    del kept
    assert memory.empty((16,), torch.float32).numel() == 16  # committed long ago
    os.dup2(good, memory.descriptor)
    assert memory.empty((2 * COMMIT_STEP,), torch.uint8).numel() == 2 * COMMIT_STEP
    os.close(good)
    os.close(bad)


def test_a_closed_arena_keeps_its_tensors_and_gives_no_new_memory(memory: Memory) -> None:
    tensor = memory.empty((4,), torch.float32).fill_(2)
    memory.arena.close()
    assert tensor.sum() == 8
    with pytest.raises(ArenaFull, match="closed"):
        memory.empty((2 * COMMIT_STEP,), torch.uint8)


def test_an_arena_that_cannot_be_mapped_says_so() -> None:
    descriptor = os.open("/dev/null", os.O_RDONLY)
    with pytest.raises(ArenaFull, match="cannot map an arena of 4096 B"):
        SharedArena(descriptor, 4096)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_closed_arena_is_unmapped_at_once_or_with_its_last_tensor() -> None:
    descriptor = os.memfd_create("arena")
    os.ftruncate(descriptor, 1 << 22)
    inode = os.fstat(descriptor).st_ino

    def mapped() -> bool:
        return f" {inode} " in Path("/proc/self/maps").read_text()

    arena = SharedArena(descriptor, 1 << 22)
    tensor = TENSORS.empty(arena, (3,), torch.float32).fill_(7.0)
    arena.close()
    assert mapped()
    assert tensor.sum().item() == 21.0
    del tensor
    assert not mapped()
    with pytest.raises(ArenaFull, match="closed"):
        TENSORS.empty(arena, (3,), torch.float32)
