"""Who is waited for, what counts, and what is refused."""

import pytest

from dlcp_client.server.book import Book
from dlcpd.contract.errors import BadConfig, BadOperation, StaleWorker


def book_of(workers: int, staleness: int | None = None, *, refuse: bool = False) -> Book:
    book = Book(staleness, refuse=refuse)
    for rank in range(workers):
        book.attach(rank, workers)
    return book


def makes(book: Book) -> list[int]:
    """Ranks in the next version, which is made."""
    pushes = book.due()
    if pushes:
        book.committed(pushes)
    return [rank for rank, _ in pushes]


def test_a_version_is_of_all_workers() -> None:
    book = book_of(3)
    for rank in (2, 0):
        assert book.push(rank, 1)
        assert not book.due()
    assert book.push(1, 1)
    assert makes(book) == [0, 1, 2]
    assert book.version == 1 and book.acknowledged == {0: 1, 1: 1, 2: 1}
    assert not book.due()


def test_nothing_is_averaged_before_all_of_the_launch_were_here() -> None:
    book = Book()
    book.attach(0, 2)
    book.push(0, 1)
    assert not book.due()
    book.attach(1, 2)
    book.push(1, 1)
    assert makes(book) == [0, 1]


def test_who_leaves_is_not_waited_for_and_who_comes_is() -> None:
    book = book_of(2)
    book.push(0, 1)
    book.leave(1)
    assert makes(book) == [0]
    assert book.attach(5, 2) == 0
    book.push(0, 2)
    assert not book.due()
    book.push(5, 1)
    assert makes(book) == [0, 5]


def test_the_lost_are_waited_for_until_their_time_is_over() -> None:
    book = book_of(2)
    book.push(0, 1)
    book.lost(1, until=5.0)
    assert not book.expire(4.9) and not book.due()
    assert list(book.expire(5.0)) == [1]
    assert makes(book) == [0]


def test_what_the_lost_pushed_as_a_whole_counts_and_is_not_taken_twice() -> None:
    book = book_of(2)
    book.push(1, 1)
    book.lost(1, until=5.0)
    book.push(0, 1)
    assert makes(book) == [0, 1]
    assert book.attach(1, 2) == 1
    assert not book.push(1, 1)


def test_who_comes_back_pushes_anew_what_was_not_acknowledged() -> None:
    book = book_of(2)
    book.push(1, 1)
    book.lost(1, until=5.0)
    assert book.attach(1, 2) == 0
    book.push(0, 1)
    assert not book.due()
    assert book.push(1, 1)
    assert makes(book) == [0, 1]


def test_after_a_recovery_the_workers_of_before_are_waited_for() -> None:
    book = Book(version=7, acknowledged={0: 7, 1: 7}, started=True)
    book.expect([0, 1], until=30.0)
    assert book.attach(0, 2) == 7
    book.push(0, 8)
    assert not book.due()
    book.expire(30.0)
    assert makes(book) == [0]


def test_a_number_that_is_not_the_next_is_refused() -> None:
    book = book_of(1)
    with pytest.raises(BadOperation, match="number 2 after 0"):
        book.push(0, 2)
    with pytest.raises(BadOperation):
        book.push(3, 1)


def test_a_rank_is_one_worker() -> None:
    book = book_of(2)
    with pytest.raises(BadConfig, match="connected already"):
        book.attach(1, 2)
    with pytest.raises(BadConfig, match="ranks are"):
        book.attach(256, 2)


def test_the_fastest_waits_for_the_slowest() -> None:
    book = book_of(2, staleness=2)
    for number in (1, 2, 3):
        assert book.may_go_on(0)
        book.push(0, number)
        assert makes(book) == [0]
    assert not book.may_go_on(0) and book.may_go_on(1)
    book.push(1, 1)
    makes(book)
    assert book.may_go_on(0)


def test_nobody_waits_for_who_left_and_who_comes_begins_with_the_slowest() -> None:
    book = book_of(2, staleness=0)
    for number in (1, 2):
        book.push(0, number)
        makes(book)
    assert not book.may_go_on(0)
    book.leave(1)
    assert book.may_go_on(0)
    book.attach(2, 2)
    assert book.may_go_on(0)
    book.push(0, 3)
    makes(book)
    assert not book.may_go_on(0)


def test_where_it_is_asked_for_the_slow_are_refused_and_the_others_go_on() -> None:
    book = book_of(2, staleness=2, refuse=True)
    for number in (1, 2, 3):
        book.push(0, number)
        makes(book)
        book.pulled(0)
        assert book.may_go_on(0)
    with pytest.raises(StaleWorker, match="3 versions ago"):
        book.push(1, 1)
    book.pulled(1)
    assert book.push(1, 1)
