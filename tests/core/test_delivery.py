"""The rate that a path delivers: samples, what is remembered of them, and when they count."""

import pytest

from dlcpd.core.paths.delivery import LEAST_SAMPLE, ROUNDS, STANDING_ROUNDS, DeliveryRate


class Path:
    """Rounds of a second each."""

    def __init__(self) -> None:
        self.rate, self.now = DeliveryRate(), 100.0
        self.rate.end_round(self.now)  # from here on time counts

    def round(self, packets: int, **seen: bool) -> float:
        self.now += 1.0
        self.rate.on_arrivals(packets)
        self.rate.end_round(self.now, **seen)
        return self.rate.rate


def test_nothing_is_known_before_the_first_sample() -> None:
    path = Path()
    assert (path.rate.known, path.rate.rate) == (False, 0.0)
    assert path.round(50) == 50
    assert path.rate.known


def test_the_second_best_counts_since_one_stamp_may_be_wrong() -> None:
    path = Path()
    path.round(50)
    path.round(51)
    assert path.round(5000) == 51


def test_pauses_of_a_host_do_not_look_like_its_link_until_they_last() -> None:
    path = Path()
    path.round(50)
    path.round(50)
    assert [path.round(10) for _ in range(ROUNDS - 2)] == [50] * (ROUNDS - 2)
    path.round(10)
    assert path.round(10) == 10


def test_while_a_queue_stands_old_rounds_are_soon_forgotten() -> None:
    path = Path()
    for _ in range(ROUNDS):
        path.round(100)
    seen = [path.round(40, standing=True) for _ in range(STANDING_ROUNDS)]
    assert seen == [100] * (STANDING_ROUNDS - 2) + [40, 40]


def test_without_a_queue_the_path_delivers_no_less_than_was_known() -> None:
    path = Path()
    for _ in range(2):
        path.round(50)
    assert [path.round(10, empty=True) for _ in range(2 * ROUNDS)] == [50] * (2 * ROUNDS)
    assert [path.round(70, empty=True) for _ in range(2)] == [50, 70]
    seen = [path.round(40, standing=True) for _ in range(STANDING_ROUNDS)]
    assert seen == [70] * (STANDING_ROUNDS - 2) + [40, 40]


@pytest.mark.parametrize("why", ["dry", "few", "no stamp", "no stamp before"])
def test_what_is_no_sample(why: str) -> None:
    path = Path()
    path.round(50)
    path.round(50)
    if why == "no stamp before":
        path.rate.end_round(None)
    packets = {"few": LEAST_SAMPLE - 1, "dry": 10}.get(why, 5000)
    path.rate.on_arrivals(packets)
    at = None if why == "no stamp" else path.now + 1.0
    path.rate.end_round(at, dry=why == "dry", standing=True)
    assert path.rate.rate == 50
    path.now += 1.0
    assert path.round(5000) == 50  # the first sample since: the second best is an old one


def test_what_little_there_was_to_send_may_show_that_the_path_delivers_more() -> None:
    path = Path()
    path.round(50)
    path.round(50)
    assert [path.round(packets, dry=True) for packets in (10, 70, 70)] == [50, 50, 70]


def test_the_clock_of_the_peer_may_wrap() -> None:
    rate = DeliveryRate()
    rate.end_round(4294.9)
    rate.on_arrivals(100)
    rate.end_round(0.032704)
    assert rate.rate == pytest.approx(1000)


def test_two_rounds_of_one_stamp_are_no_sample() -> None:
    path = Path()
    path.rate.on_arrivals(100)
    path.rate.end_round(path.now)
    assert not path.rate.known


def test_what_is_assumed_counts_until_there_are_samples() -> None:
    path = Path()
    path.rate.assume(30.0)
    assert path.rate.rate == 30
    path.round(50)
    assert path.round(50) == 50


def test_what_is_forgotten_is_gone() -> None:
    path = Path()
    path.round(50)
    path.rate.forget()
    assert not path.rate.known
    path.round(50)
    assert not path.rate.known  # it began with this round
