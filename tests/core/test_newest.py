"""Time stamps of a peer: the newest counts, and what is sent once more is not it."""

import pytest

from dlcpd.core.paths.newest import MAX_AHEAD, WRAP, Newest

S = 1_000_000  # microseconds


def test_stamps_count_up() -> None:
    newest = Newest()
    assert newest.see(5, 1.0)
    assert newest.see(5, 1.0)  # of the same burst
    assert not newest.see(4, 1.0)
    assert newest.see(6, 1.0)
    assert not newest.see(0, 2.0)  # no stamp


def test_the_first_may_be_any_and_stamps_wrap() -> None:
    newest = Newest()
    assert newest.see(WRAP - 2, 1.0)
    assert newest.see(3, 1.0)
    assert not newest.see(WRAP - 1, 1.0)


@pytest.mark.parametrize("silence", [0.0, 1.0, 600.0, 3600.0, 4300.0, 90_000.0])
def test_after_any_silence_the_peers_next_one_is_newer(silence: float) -> None:
    newest = Newest()
    newest.see(7 * S, 10.0)
    assert newest.see((7 * S + int(silence * S) + 1) % WRAP, 10.0 + silence)


@pytest.mark.parametrize("silence", [0.0, 1.0, 600.0, 3600.0])
def test_an_older_one_is_refused_after_an_hour_of_silence_as_well(silence: float) -> None:
    newest = Newest()
    newest.see(7 * S, 10.0)
    assert not newest.see(2 * S, 10.0 + silence)


def test_one_that_is_far_ahead_does_not_shut_out_those_that_follow() -> None:
    newest = Newest()
    newest.see(7 * S, 10.0)
    assert not newest.see(int((8 + MAX_AHEAD) * S), 10.0)
    assert newest.see(int((6 + MAX_AHEAD) * S), 10.0)  # the one before may have waited
