"""The paths of a flow together: even over routes, less on lossy ones, none on dead ones."""

from collections import Counter

import pytest

from dlcpd.core.endpoint import Endpoint, PeerSpec
from dlcpd.core.paths.health import SAMPLE, PathState
from dlcpd.core.paths.newest import microseconds
from dlcpd.core.paths.pacing import Pacer
from dlcpd.core.paths.paths import CONTROL, MOST_SKEW, Paths
from dlcpd.core.send_scheduler import SendScheduler
from dlcpd.core.wire.control import SpaceCredit

BULK = 4


def spray(paths: Paths, bursts: int, *, start: float = 0.0) -> Counter[int]:
    """Where bursts go when every one is credited at once; datagrams by path."""
    sent: Counter[int] = Counter()
    for number in range(bursts):
        now = start + number
        index, room, _ = paths.pick(BULK, 16, 1 << 16, now)
        burst = min(room, 16)
        space = paths.space(index, BULK)
        space.sent += burst
        paths.on_sent(index, burst)
        row = SpaceCredit(index, BULK, 0, space.sent % (1 << 32), space.sent, 0, 0, 0)
        space.on_credit(row, now)
        sent[index] += burst
    return sent


def answer(paths: Paths, path: int) -> tuple[list[tuple[int, PathState]], bool]:
    """The peer brings the time stamp of a ping on a path back."""
    paths.space(path, CONTROL)
    row = SpaceCredit(path, CONTROL, 0, 0, 0, microseconds(1.0), 0, 0)
    return paths.on_credit([row], 1.0)


def test_what_is_sent_again_does_not_bring_a_path_back() -> None:
    paths = Paths.new(2)
    answer(paths, 1)
    paths.silent()  # the look that finds the answer
    assert silence(paths, 1) == [1]
    assert answer(paths, 1) == ([], False), "the same answer once more"
    assert set(spray(paths, 100)) == {0}


def test_paths_take_equal_shares() -> None:
    sent = spray(Paths.new(4), 4000)
    assert max(sent.values()) / min(sent.values()) < 1.02


def test_routes_take_equal_shares_however_many_paths_reach_them() -> None:
    paths = Paths.new(4)
    for path, spine in enumerate(["a", "a", "a", "b"]):
        paths.routes.learn(path, ["leaf", spine])
    paths.regroup()
    assert paths.distinct == 2
    sent = spray(paths, 4000)
    assert set(sent) == {0, 3}  # windows and bursts that share links are one
    assert sent[3] == pytest.approx(sent[0], rel=0.02)


def silence(paths: Paths, path: int) -> list[int]:
    """`path` carries something three times and never answers; which go down."""
    for _ in range(3):
        paths.space(path, BULK).sent += 1
        silent = paths.silent()
    return paths.demote(silent)


def test_with_a_path_goes_its_whole_route() -> None:
    paths = Paths.new(4)
    for path, spine in enumerate(["a", "b", "a", "b"]):
        paths.routes.learn(path, [spine])
    paths.regroup()
    assert silence(paths, 0) == [0]
    assert not paths.tx[2].up
    assert set(spray(paths, 100)) == {1}
    answer(paths, 2)
    assert set(spray(paths, 100, start=1e4)) == {1, 2}  # another of its paths will do


def test_a_full_path_is_passed_over() -> None:
    paths = Paths.new(2)
    space = paths.space(0, BULK)
    space.sent = int(space.congestion.window)
    assert paths.pick(BULK, 8, 1 << 16, now=1.0)[0] == 1


def test_each_path_is_judged_by_a_burst_of_its_own() -> None:
    """A slow path saves up few packets: a fast one's burst would keep it from ever sending."""
    paths = Paths.new(2)
    for path, (window, pace, burst) in enumerate([(256, 250e3, 125), (8, 750.0, 8)]):
        congestion = paths.space(path, BULK).congestion
        congestion.window, congestion.pace, congestion.worthwhile = window, pace, burst
        congestion.allowance(0.5)
    paths.on_sent(0, 100)
    index, room, enough = paths.pick(BULK, 100, 1 << 16, now=1.0)
    assert (index, enough) == (1, 4)
    assert room >= enough


def test_a_lossy_path_takes_less_and_never_nothing() -> None:
    paths = Paths.new(2)
    paths.health[1].loss = 0.05
    sent = spray(paths, 4000)
    assert 0.2 < sent[1] / sent[0] < 0.5
    paths.health[1].loss = 0.9
    sent = spray(paths, 4000, start=1e4)
    assert 0.03 < sent[1] / sent[0] < 0.1


def test_loss_on_all_paths_is_nobodys_fault() -> None:
    paths = Paths.new(2)
    for health in paths.health:
        health.loss = 0.05
    sent = spray(paths, 4000)
    assert sent[0] == pytest.approx(sent[1], rel=0.02)


def test_a_path_that_comes_back_does_not_catch_up() -> None:
    paths = Paths.new(2)
    assert silence(paths, 1) == [1]
    assert set(spray(paths, 1000)) == {0}
    assert answer(paths, 1) == ([(1, PathState.UP)], True)
    sent = spray(paths, 1000, start=1e4)
    assert sent[0] == pytest.approx(sent[1], rel=0.05)


def test_a_credit_tells_of_a_gray_path() -> None:
    paths = Paths.new(2)
    news = list[tuple[int, PathState]]()
    for number in (1, 2):
        paths.space(0, BULK).sent = sent = number * SAMPLE
        row = SpaceCredit(0, BULK, 0, sent, sent - number * SAMPLE // 50, 0, 0, 0)
        news += paths.on_credit([row], 1.0)[0]
    assert news == [(0, PathState.GRAY)]


def test_a_class_does_not_see_what_is_below_it() -> None:
    paths = Paths.new(1)
    paths.space(0, 1).sent = 5
    paths.space(0, BULK).sent = 7
    assert [paths.in_flight(c) for c in (0, 1, BULK, None)] == [0, 5, 12, 12]


def test_a_class_without_samples_goes_by_what_the_path_knows() -> None:
    paths = Paths.new(1)
    for _ in range(50):
        paths.space(0, BULK).rtt.update(0.05)
    assert paths.timeout(0) >= 0.05
    assert paths.timeout(BULK) >= 0.05


def test_a_hole_waits_for_the_slowest_of_unequal_paths() -> None:
    """All of the difference of two round trips may lie on the way there."""
    paths = Paths.new(2)
    for path, round_trip in enumerate((100e-6, 2.1e-3)):
        paths.space(path, BULK).rtt.update(round_trip)
    assert 2e-3 < paths.reordering(BULK) <= 5e-3
    paths.space(1, BULK).rtt.update(1.0)
    assert paths.reordering(BULK) == MOST_SKEW


def drawn(session: int) -> list[int]:
    """The routes that the flow of a session draws for what goes by chance."""
    endpoint = Endpoint(64, 1 << 20, SendScheduler(Pacer(0.0)))
    peer = PeerSpec(1, "b", token_in=1000 + session, token_out=2000 + session, paths=4)
    paths = endpoint.open_session(session, 0, [peer], peer_timeout=1.0).flows[1].paths
    for path in range(4):
        paths.routes.learn(path, ["leaf", str(path)])
    paths.regroup()
    return [paths.for_credit() for _ in range(32)]


def test_flows_draw_routes_by_chance_of_their_own_and_the_same_when_run_again() -> None:
    first, second = drawn(1), drawn(2)
    assert first == drawn(1)
    assert first != second
    assert set(first) == set(second) == {0, 1, 2, 3}
