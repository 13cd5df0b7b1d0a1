import numpy as np
import pytest

from dlcp_lab.ranks.digits import MAX_RANKS, Loss, decode, losses, unit


@pytest.mark.parametrize("ranks", range(1, MAX_RANKS + 1))
def test_every_count_of_every_rank_can_be_read(ranks: int) -> None:
    counts = np.random.default_rng(ranks).integers(0, LARGEST_DIGIT + 1, (ranks, 500))
    total = np.zeros(500, np.float32)
    for rank in range(ranks):  # one at a time, as a reduction adds them
        total = total + np.float32(unit(rank)) * counts[rank].astype(np.float32)
    assert (decode(total, ranks) == counts).all()


LARGEST_DIGIT = 7


def test_the_largest_sum_is_still_exact() -> None:
    total = sum(unit(rank) * LARGEST_DIGIT for rank in range(MAX_RANKS))
    assert total == 2**24 - 1 == float(np.float32(total))


def arrived(ranks: int, elements: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.ones((ranks, elements), np.int64)


def test_whole_segments_are_found_by_sender_chunk_and_position() -> None:
    counts = arrived(2, 100)
    counts[1, 20:30] = 0  # chunk 0, third segment
    counts[0, 50:60] = 0  # chunk 1, first segment
    counts[0, 95:100] = 0  # chunk 1, the short last segment
    found = list(losses(counts, [(0, 0, 50), (1, 50, 50)], 10))
    assert found == [Loss(1, 0, (2,), 0), Loss(0, 1, (0, 4), 1)]


def test_a_short_last_segment_is_whole_when_all_of_it_is_missing() -> None:
    counts = arrived(1, 25)
    counts[0, 20:25] = 0
    assert list(losses(counts, [(7, 0, 25)], 10)) == [Loss(0, 7, (2,), 0)]


def test_nothing_missing_is_nothing_found() -> None:
    assert list(losses(arrived(3, 40), [(0, 0, 40)], 10)) == []


def test_what_came_back_is_not_missing() -> None:
    counts = arrived(1, 20)
    counts[0, :10] = 2
    assert list(losses(counts, [(0, 0, 20)], 10)) == []
