"""What a link carries, in bins: its rate shows while it is the limit, and only then."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.core.paths.link_rate import (
    BIN,
    BINS,
    LATE,
    LEAST_QUEUE,
    LinkPart,
    LinkRate,
    LinkReading,
)
from dlcpd.core.paths.newest import WRAP

SIZE = 10_000  # bytes of a bin
RATE = round(SIZE / BIN * 8)
QUEUE = LEAST_QUEUE / (SIZE / BIN)  # seconds
BEGAN = 1000.0
END = BEGAN + (BINS + LATE) * BIN + BIN / 2


def link(*, hosts: str = "ab", wait: float = QUEUE, quick: str = "", bins: int = BINS) -> LinkRate:
    """With equal parts to `hosts` in the first bins; data to those of `quick` do not wait."""
    made = LinkRate()
    for number in range(bins):
        for host in hosts:
            at = BEGAN + (number + 0.5) * BIN
            made.add(host, SIZE / len(hosts), at, 0.0 if host in quick else wait)
    return made


def test_a_link_in_whose_queue_all_data_wait_is_the_limit() -> None:
    assert link().reading(END) == LinkReading(RATE, RATE, 100, 2)


@pytest.mark.parametrize("wait", [0.0, 0.9 * QUEUE])
def test_a_link_without_a_queue_has_at_least_its_best_rate(wait: float) -> None:
    assert link(wait=wait).reading(END) == LinkReading(RATE, 0, 0, 2)


def test_a_slow_peer_delays_its_own_data_only() -> None:
    assert link(quick="b").reading(END) == LinkReading(RATE, 0, 0, 2)


def test_bins_without_data_of_some_host_do_not_tell_where_the_queue_is() -> None:
    made = link(bins=10)
    for number in range(10, BINS):
        made.add("a", SIZE, BEGAN + (number + 0.5) * BIN, QUEUE)
    assert made.reading(END).part == pytest.approx(100 * 11 / BINS, abs=1)  # the next tells, too


def test_hosts_whose_data_are_in_every_third_bin_count() -> None:
    made = link(hosts="a")
    for number in range(1, BINS, 3):
        made.add("b", SIZE / 100, BEGAN + (number + 0.5) * BIN, QUEUE)
    assert made.reading(END).part == 100


def test_two_late_stamps_change_nothing_and_bins_with_little_are_no_limit() -> None:
    made = link(bins=20)
    for number in (3, 7):
        made.add("a", 5 * SIZE, BEGAN + (number + 0.5) * BIN, QUEUE)
    for number in range(20, BINS):
        made.add("b", SIZE / 10, BEGAN + (number + 0.5) * BIN, 10 * QUEUE)
    assert made.reading(END) == LinkReading(RATE, RATE, 67, 2)


def test_old_and_late_bins_do_not_count() -> None:
    made = link()
    assert made.reading(END + BIN).part == 97
    made.add("a", 99 * SIZE, BEGAN - BIN, QUEUE)  # older than all
    made.add("a", 99 * SIZE, END - BIN, QUEUE)  # its bin is not complete
    assert made.reading(END) == LinkReading(RATE, RATE, 100 - 100 // BINS, 2)
    assert made.reading(END + 100) == LinkRate().reading(0.0) == LinkReading(0, 0, 0, 0)


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.floats(0, 3), st.floats(0, 1)), min_size=1, max_size=60
    )
)
def test_no_reading_is_above_the_best_bin(arrivals: list[tuple[str, float, float]]) -> None:
    made, sums = LinkRate(), dict[int, float]()
    for host, at, wait in arrivals:
        made.add(host, SIZE, at, wait)
        sums[int(at / BIN)] = sums.get(int(at / BIN), 0) + SIZE
    found = made.reading(max(at for _, at, _ in arrivals) + (LATE + 1) * BIN)
    assert 0 <= found.rate <= max(sums.values()) / BIN * 8 and found.most <= RATE * len(arrivals)
    assert 0 <= found.part <= 100


@pytest.mark.parametrize("ahead", [0, 12_345, WRAP - 5])
def test_waits_are_those_beyond_the_quickest_whatever_the_peers_clock(ahead: int) -> None:
    part = LinkPart(LinkRate(), "a")
    for number in range(BINS):
        sent = BEGAN + (number + 0.1) * BIN
        wait = 0.0 if number == 0 else QUEUE * 1.01
        part.came(0, SIZE, (int(sent * 1e6) + ahead) % WRAP or 1, sent + 0.001 + wait)
    assert part.link.reading(END).part == pytest.approx(100, abs=7)  # the first waited least
    part.came(0, 99 * SIZE, 0, END - 4 * BIN)  # without a stamp
    assert part.link.reading(END).most == RATE


def test_what_stays_on_the_host_does_not_count() -> None:
    shared = LinkRate()
    LinkPart.of(shared, "a", "a").sent(SIZE, BEGAN, 0.0)
    assert shared.reading(BEGAN + 1).hosts == 0
    LinkPart.of(shared, "b", "a").sent(SIZE, BEGAN, 0.0)
    assert shared.reading(BEGAN + 1).hosts == 1


def test_news_of_a_slow_flow_are_of_all_bins_since_the_last() -> None:
    part = LinkPart(LinkRate(), "a")
    for number in range(2, BINS, 3):
        part.sent(3 * SIZE, BEGAN + (number + 0.5) * BIN, QUEUE)
    assert part.link.reading(END).rate == RATE
    part.sent(SIZE, END + 10 * BIN, QUEUE)  # after a pause
    assert part.link.reading(END + 11 * BIN + LATE * BIN).hosts == 1
