"""The arena's bookkeeping: regions never overlap, freed ones merge, refusals change nothing."""

from copy import deepcopy

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
)

from dlcpd.contract.arena import ALIGNMENT, Arena, aligned
from dlcpd.contract.errors import ArenaFull

PAGES = 16


class ArenaMachine(RuleBasedStateMachine):
    """Random allocations and frees against a model: the set of pages in use."""

    offsets: Bundle[int] = Bundle("offsets")

    def __init__(self) -> None:
        super().__init__()
        self.arena = Arena(PAGES * ALIGNMENT)
        self.regions: dict[int, int] = {}  # offset -> bytes

    def gaps(self) -> list[tuple[int, int]]:
        """(offset, bytes) between the regions in use."""
        gaps, at = [], 0
        for offset, size in [*sorted(self.regions.items()), (self.arena.size, 0)]:
            gaps.append((at, offset - at))
            at = offset + size
        return gaps

    @rule(target=offsets, size=st.integers(0, PAGES * ALIGNMENT // 2))
    def allocate(self, size: int) -> MultipleResults[int] | int:
        need = max(aligned(size), ALIGNMENT)
        fitting = [offset for offset, length in self.gaps() if length >= need]
        if not fitting:
            before = deepcopy(self.arena)
            with pytest.raises(ArenaFull, match=f"no room for {size} B"):
                self.arena.allocate(size)
            assert self.arena == before
            return multiple()
        offset = self.arena.allocate(size)
        assert offset == fitting[0]  # first fit: a gap that merging lost would be missed here
        self.regions[offset] = need
        return offset

    @rule(offset=consumes(offsets))
    def free(self, offset: int) -> None:
        self.arena.free(offset)
        del self.regions[offset]
        with pytest.raises(KeyError):
            self.arena.free(offset)

    @rule(offset=st.integers(-1, PAGES * ALIGNMENT))
    def free_what_was_never_given(self, offset: int) -> None:
        if offset not in self.regions:
            with pytest.raises(KeyError):
                self.arena.free(offset)

    @invariant()
    def regions_are_aligned_disjoint_and_inside(self) -> None:
        at = 0
        for offset, size in sorted(self.regions.items()):
            assert offset % ALIGNMENT == 0
            assert offset >= at
            at = offset + size
        assert at <= self.arena.size

    @invariant()
    def the_sums_agree(self) -> None:
        assert self.arena.used == sum(self.regions.values())


TestArenaSequences = ArenaMachine.TestCase


def test_regions_start_on_pages() -> None:
    assert ALIGNMENT % 4096 == 0


@pytest.mark.parametrize(
    ("size", "pages"), [(0, 0), (1, 1), (ALIGNMENT - 1, 1), (ALIGNMENT, 1), (ALIGNMENT + 1, 2)]
)
def test_sizes_round_up_to_pages(size: int, pages: int) -> None:
    assert aligned(size) == pages * ALIGNMENT


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (0, 2, 1), (1, 0, 2)], ids=str)
def test_freed_neighbours_merge_in_any_order(order: tuple[int, ...]) -> None:
    arena = Arena(3 * ALIGNMENT)
    offsets = [arena.allocate(ALIGNMENT) for _ in range(3)]
    for index in order:
        arena.free(offsets[index])
    assert arena.allocate(3 * ALIGNMENT) == 0


def test_freed_memory_is_used_again_before_fresh() -> None:
    arena = Arena(8 * ALIGNMENT)
    first, _ = arena.allocate(ALIGNMENT), arena.allocate(ALIGNMENT)
    arena.free(first)
    assert arena.allocate(1) == first
    assert arena.allocate(1) == 2 * ALIGNMENT


def test_an_odd_tail_is_never_given_out() -> None:
    arena = Arena(2 * ALIGNMENT - 1)
    assert arena.allocate(1) == 0
    with pytest.raises(ArenaFull, match="1 tensors"):
        arena.allocate(1)
