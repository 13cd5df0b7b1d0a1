"""One path: it owes answers, goes down, comes back; its classes keep their numbers apart."""

from dlcpd.core.paths.path import PathReceiver, PathSender


def sender(sent: int) -> PathSender:
    path = PathSender()
    path.space(4).sent = sent
    return path


def test_classes_have_numbers_of_their_own() -> None:
    path = sender(10)
    path.space(1).sent = 5
    assert (path.space(4).sent, path.in_flight, path.sent) == (10, 15, 15)
    assert path.space(4) is path.space(4)


def test_a_path_owes_credit_by_class() -> None:
    path = PathReceiver()
    path.space(1).on_datagrams(3, 3)
    path.space(4).asked = True
    assert path.space(2).pending == 0
    assert [number for number, _ in path.owing()] == [1, 4]


# --- whether it still carries ----------------------------------------------------------


def test_a_path_that_owes_nothing_is_not_silent() -> None:
    path = PathSender()
    assert not path.check()
    assert path.stalls == 0


def test_a_path_with_unanswered_data_stalls_until_it_answers() -> None:
    path = sender(10)
    assert [path.check() for _ in range(3)] == [True] * 3
    assert path.stalls == 3
    path.heard()
    assert not path.check()
    assert path.stalls == 0


def test_unanswered_control_counts_once() -> None:
    path = PathSender(expecting=True)
    assert path.check()
    assert not path.check()


def test_a_path_that_is_down_owes_an_answer_and_blocks_no_window() -> None:
    path = sender(10)
    path.demote()
    assert not path.up
    assert path.in_flight == 0
    assert path.check()
    path.heard()
    assert path.up
