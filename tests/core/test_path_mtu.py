"""Path MTU search on a virtual clock: what is found, when it falls, what it costs."""

import random
from dataclasses import dataclass, field
from heapq import heappop, heappush

import pytest

from dlcpd.core.paths.path_mtu import (
    BLOCKED_RETRY,
    MAX_PROBES,
    MAX_WAIT,
    RAISE,
    REFERENCE,
    PathMtu,
    SearchState,
)
from dlcpd.core.wire.header import HEADER_SIZE
from dlcpd.core.wire.sizes import BASE, MAX_SEGMENT, datagram_size, segment_within

IPV4, IPV6 = 28, 48  # bytes of headers
SETTLED = 10.0  # seconds that any search is given


@dataclass
class Road:
    """A path that carries packets of at most `mtu` bytes, and the search at its end."""

    search: PathMtu
    mtu: int
    icmp: bool = False  # a router tells what it drops
    rtt: float = 1e-3
    loss: float = 0.0
    silent: bool = False  # nobody answers
    seed: int = 0
    now: float = 1000.0
    sent: list[int] = field(default_factory=list)  # sizes
    most_at_once: int = 0
    _answers: list[tuple[float, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self.search.timer = self.now

    def run(self, seconds: float = SETTLED) -> None:
        stop = self.now + seconds
        for _ in range(10_000):
            at = min([self.search.timer, *(a[0] for a in self._answers[:1])])
            if at > stop:
                self.now = stop
                return
            self.now = max(at, self.now)
            if self._answers and self._answers[0][0] <= self.now:
                _, number, received = heappop(self._answers)
                self.search.on_answer(number, received, self.now)
            else:
                self._send()
        raise AssertionError("livelock")

    def _send(self) -> None:
        probes = self.search.on_timer(self.now)
        assert not probes or self.search.timer > self.now
        self.most_at_once = max(self.most_at_once, sum(datagram_size(p.size) for p in probes))
        for number, size in probes:
            self.sent.append(size)
            length = datagram_size(size)
            if length + self.search.headers > self.mtu:
                if self.icmp:
                    limit = segment_within(self.mtu, self.search.headers)
                    self.search.on_too_big(size, limit, self.now)
            elif not self.silent and self._rng.random() >= self.loss:
                heappush(self._answers, (self.now + self.rtt, number, length))


def road(mtu: int, *, headers: int = IPV4, local: int = 9000, **options: float) -> Road:
    search = PathMtu(headers, min(segment_within(local, headers), MAX_SEGMENT))
    return Road(search, mtu, **options)  # type: ignore[arg-type]


# --- found ---------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [IPV4, IPV6])
@pytest.mark.parametrize("icmp", [False, True])
@pytest.mark.parametrize("mtu", [1280, 1400, 1420, 1450, 1460, 1500, 8896, 8950, 9000])
def test_common_sizes_are_found_exactly(mtu: int, icmp: bool, headers: int) -> None:
    found = road(mtu, headers=headers, icmp=icmp)
    found.run()
    assert found.search.size == segment_within(mtu, headers)
    assert found.search.state is SearchState.COMPLETE
    assert mtu - 64 < found.search.packet <= mtu


@pytest.mark.parametrize("mtu", range(1280, 9001, 331))
def test_any_size_is_found_to_a_sixteenth_and_never_exceeded(mtu: int) -> None:
    found = road(mtu)
    found.run()
    best = segment_within(mtu, IPV4)
    assert best * 15 // 16 - 64 <= found.search.size <= best
    assert found.search.state is SearchState.COMPLETE


def test_a_router_that_names_its_mtu_is_believed_only_as_far_as_probes_agree() -> None:
    found = road(4000, icmp=True)
    found.run()
    assert found.search.size == segment_within(4000, IPV4)


def test_the_local_interface_is_the_first_guess_and_one_round_trip_confirms_it() -> None:
    found = road(9000)
    found.run(found.rtt * 1.5)
    assert found.search.size == MAX_SEGMENT
    assert found.search.state is SearchState.COMPLETE


def test_nothing_above_the_local_interface_is_tried() -> None:
    found = road(9000, local=1500)
    found.run()
    assert max(found.sent) == found.search.size == segment_within(1500, IPV4)


def test_a_setting_below_the_base_is_obeyed() -> None:
    found = Road(PathMtu(IPV4, 512), 1500)
    found.run()
    assert max(found.sent) == found.search.size == 512
    assert found.search.state is SearchState.COMPLETE


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("mtu", [1460, 9000])
def test_loss_does_not_mislead(mtu: int, seed: int) -> None:
    found = road(mtu, loss=0.1, seed=seed)
    found.run(60)
    assert found.search.size == segment_within(mtu, IPV4)


@pytest.mark.parametrize("rtt", [1e-5, 0.2, 0.9])
def test_long_round_trips_are_waited_for(rtt: float) -> None:
    found = road(1450, rtt=rtt)
    found.run(60)
    assert found.search.size == segment_within(1450, IPV4)


def test_until_something_is_confirmed_the_base_is_used() -> None:
    found = road(9000, silent=True)
    found.run()
    assert found.search.size == BASE
    assert found.search.packet == 0
    assert found.search.state is SearchState.BASE


# --- cost ----------------------------------------------------------------------------------


def test_a_complete_search_is_quiet_until_it_tries_to_raise() -> None:
    found = road(1500)
    found.run(60)
    known = len(found.sent)
    assert known < 150
    found.run(RAISE - 61)
    assert len(found.sent) == known
    found.mtu = 9000
    found.run(60)
    assert found.search.size == MAX_SEGMENT


def test_few_probes_at_once_and_only_small_ones_to_the_silent() -> None:
    found = road(9000, silent=True)
    found.run(60)
    assert found.most_at_once <= 3 * 9000
    assert set(found.sent[-10:]) == {REFERENCE, BASE}
    assert len(found.sent) < 2 * (60 / MAX_WAIT + 10)


def test_a_peer_that_wakes_up_is_asked_at_once() -> None:
    found = road(9000, silent=True)
    found.run(60)
    found.silent = False
    found.search.on_peer_heard(found.now)
    found.run(0.01)
    assert found.search.size == MAX_SEGMENT


def test_a_peer_that_answers_is_not_asked_faster_for_what_it_sends() -> None:
    found = road(9000)
    found.run()
    before = found.search.timer
    found.search.on_peer_heard(found.now)
    assert found.search.timer == before


# --- falls ---------------------------------------------------------------------------------


def test_a_router_that_says_too_big_lowers_at_once() -> None:
    found = road(1500)
    found.run()
    found.mtu = 1400
    found.search.on_too_big(found.search.size, segment_within(1400, IPV4), found.now)
    assert found.search.size == BASE
    found.run(found.rtt * 1.5)
    assert found.search.size == segment_within(1400, IPV4)


def test_a_kernel_that_names_no_size_lowers_too() -> None:
    found = road(9000)
    found.run()
    found.mtu = 1500
    found.search.on_too_big(found.search.size, 0, found.now)
    assert found.search.size == BASE
    found.run()
    assert found.search.size == segment_within(1500, IPV4)


def test_a_black_hole_is_found_by_asking() -> None:
    found = road(1500)
    found.run()
    found.mtu = 1400
    found.search.suspect(found.now)
    assert found.search.size == segment_within(1500, IPV4)  # a suspicion is no proof
    found.run(1.0)
    assert found.search.size == segment_within(1400, IPV4)


def test_a_suspicion_that_proves_wrong_changes_nothing() -> None:
    found = road(9000)
    found.run()
    found.search.suspect(found.now)
    known = len(found.sent)
    found.run(1.0)
    assert found.search.size == MAX_SEGMENT
    assert len(found.sent) == known + 2


def test_a_dead_path_proves_nothing_about_sizes() -> None:
    found = road(1500)
    found.run()
    found.silent = True
    found.search.suspect(found.now)
    found.run(60)
    assert found.search.size == segment_within(1500, IPV4)
    found.silent = False
    found.run(MAX_WAIT + 1)
    assert found.search.size == segment_within(1500, IPV4)
    assert found.search.state is SearchState.COMPLETE


def test_too_big_about_what_is_not_sent_any_more_changes_nothing() -> None:
    found = road(1460)
    found.run()
    before = found.search.size, found.search.timer
    found.search.on_too_big(segment_within(1500, IPV4), segment_within(1480, IPV4), found.now)
    assert (found.search.size, found.search.timer) == before


@pytest.mark.parametrize("limit", [0, 64, 512])
def test_no_router_gets_us_below_the_base(limit: int) -> None:
    found = road(1500)
    found.run()
    found.search.on_too_big(found.search.size, limit, found.now)
    assert found.search.size == BASE
    found.run()
    assert found.search.confirmed >= BASE
    assert not found.search.blocked


# --- blocked -------------------------------------------------------------------------------


def test_a_path_below_the_least_mtu_is_called_blocked_and_asked_again() -> None:
    found = road(1000)
    found.run()
    assert found.search.blocked
    assert found.search.packet == 0
    found.mtu = 1400
    found.run(BLOCKED_RETRY + 5)
    assert found.search.state is SearchState.COMPLETE
    assert found.search.size == segment_within(1400, IPV4)


def test_a_silent_path_is_not_called_blocked() -> None:
    found = road(1000, silent=True)
    found.run(60)
    assert found.search.state is SearchState.BASE
    assert not found.search.blocked


# --- answers that prove nothing --------------------------------------------------------------


def test_an_answer_counts_once_and_only_at_full_length() -> None:
    search = PathMtu(IPV4, MAX_SEGMENT)
    probes = search.on_timer(0.0)
    large = next(p for p in probes if p.size == MAX_SEGMENT)
    assert not search.on_answer(large.number, HEADER_SIZE + 1152, 0.001)
    assert not search.on_answer(large.number + 100, datagram_size(MAX_SEGMENT), 0.001)
    assert search.size == BASE
    assert search.on_answer(large.number, datagram_size(MAX_SEGMENT), 0.001)
    assert not search.on_answer(large.number, datagram_size(MAX_SEGMENT), 0.001)
    assert search.size == MAX_SEGMENT


def test_one_lost_probe_is_asked_again_and_not_judged() -> None:
    found = road(9000)
    first = found.search.on_timer(found.now)
    found.search.on_answer(first[0].number, datagram_size(REFERENCE), found.now + 0.001)
    for _ in range(MAX_PROBES - 1):
        found.now = found.search.timer
        again = found.search.on_timer(found.now)
        assert MAX_SEGMENT in [probe.size for probe in again]
        found.search.on_answer(again[0].number, datagram_size(REFERENCE), found.now + 0.001)
    found.now = found.search.timer
    assert MAX_SEGMENT not in [probe.size for probe in found.search.on_timer(found.now)]
