"""Who is waited for, what counts, and what is refused."""

import pytest

from dlcp_client.server.progress import ShardProgress
from dlcpd.contract.errors import BadConfig, BadOperation, StaleWorker


def book_of(workers: int, staleness: int | None = None, *, refuse: bool = False) -> ShardProgress:
    progress = ShardProgress(staleness, refuse=refuse)
    for rank in range(workers):
        progress.attach(rank, workers)
    return progress


def makes(progress: ShardProgress) -> list[int]:
    """Ranks in the next version, which is made."""
    pushes = progress.due()
    if pushes:
        progress.committed(pushes)
    return [rank for rank, _ in pushes]


def test_a_version_is_of_all_workers() -> None:
    progress = book_of(3)
    for rank in (2, 0):
        assert progress.push(rank, 1)
        assert not progress.due()
    assert progress.push(1, 1)
    assert makes(progress) == [0, 1, 2]
    assert progress.version == 1 and progress.acknowledged == {0: 1, 1: 1, 2: 1}
    assert not progress.due()


def test_nothing_is_averaged_before_all_of_the_launch_were_here() -> None:
    progress = ShardProgress()
    progress.attach(0, 2)
    progress.push(0, 1)
    assert not progress.due()
    progress.attach(1, 2)
    progress.push(1, 1)
    assert makes(progress) == [0, 1]


def test_who_leaves_is_not_waited_for_and_who_comes_is() -> None:
    progress = book_of(2)
    progress.push(0, 1)
    progress.leave(1)
    assert makes(progress) == [0]
    assert progress.attach(5, 2) == 0
    progress.push(0, 2)
    assert not progress.due()
    progress.push(5, 1)
    assert makes(progress) == [0, 5]


def test_the_lost_are_waited_for_until_their_time_is_over() -> None:
    progress = book_of(2)
    progress.push(0, 1)
    progress.lost(1, until=5.0)
    assert not progress.expire(4.9) and not progress.due()
    assert list(progress.expire(5.0)) == [1]
    assert makes(progress) == [0]


def test_what_the_lost_pushed_as_a_whole_counts_and_is_not_taken_twice() -> None:
    progress = book_of(2)
    progress.push(1, 1)
    progress.lost(1, until=5.0)
    progress.push(0, 1)
    assert makes(progress) == [0, 1]
    assert progress.attach(1, 2) == 1
    assert not progress.push(1, 1)


def test_who_comes_back_pushes_anew_what_was_not_acknowledged() -> None:
    progress = book_of(2)
    progress.push(1, 1)
    progress.lost(1, until=5.0)
    assert progress.attach(1, 2) == 0
    progress.push(0, 1)
    assert not progress.due()
    assert progress.push(1, 1)
    assert makes(progress) == [0, 1]


def test_after_a_recovery_the_workers_of_before_are_waited_for() -> None:
    progress = ShardProgress(version=7, acknowledged={0: 7, 1: 7}, started=True)
    progress.expect([0, 1], until=30.0)
    assert progress.attach(0, 2) == 7
    progress.push(0, 8)
    assert not progress.due()
    progress.expire(30.0)
    assert makes(progress) == [0]


def test_a_number_that_is_not_the_next_is_refused() -> None:
    progress = book_of(1)
    with pytest.raises(BadOperation, match="number 2 after number 0"):
        progress.push(0, 2)
    with pytest.raises(BadOperation):
        progress.push(3, 1)


def test_a_rank_is_one_worker() -> None:
    progress = book_of(2)
    with pytest.raises(BadConfig, match="already connected"):
        progress.attach(1, 2)
    with pytest.raises(BadConfig, match="ranks are"):
        progress.attach(256, 2)


def test_the_fastest_waits_for_the_slowest() -> None:
    progress = book_of(2, staleness=2)
    for number in (1, 2, 3):
        assert progress.may_go_on(0)
        progress.push(0, number)
        assert makes(progress) == [0]
    assert not progress.may_go_on(0) and progress.may_go_on(1)
    progress.push(1, 1)
    makes(progress)
    assert progress.may_go_on(0)


def test_nobody_waits_for_who_left_and_who_comes_begins_with_the_slowest() -> None:
    progress = book_of(2, staleness=0)
    for number in (1, 2):
        progress.push(0, number)
        makes(progress)
    assert not progress.may_go_on(0)
    progress.leave(1)
    assert progress.may_go_on(0)
    progress.attach(2, 2)
    assert progress.may_go_on(0)
    progress.push(0, 3)
    makes(progress)
    assert not progress.may_go_on(0)


def test_where_it_is_asked_for_the_slow_are_refused_and_the_others_go_on() -> None:
    progress = book_of(2, staleness=2, refuse=True)
    for number in (1, 2, 3):
        progress.push(0, number)
        makes(progress)
        progress.pulled(0)
        assert progress.may_go_on(0)
    with pytest.raises(StaleWorker, match="3 versions old"):
        progress.push(1, 1)
    progress.pulled(1)
    assert progress.push(1, 1)
