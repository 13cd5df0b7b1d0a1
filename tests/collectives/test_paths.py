"""Several paths: datagrams are spread over all of them, and numbered on each."""

from collections import Counter
from functools import partial

import pytest

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcp_lab.simulation.reference import draw, rank_ordered
from dlcpd.core.wire.header import Kind


class DeadPath:
    """A network in which some paths go dead, both ways, after `after` datagrams."""

    def __init__(self, net: SimNetwork, *paths: int, after: int) -> None:
        self.net, self.paths, self.after, self.seen = net, paths, after, 0
        net.recorded = []

    def __call__(self, source: int, target: int, data: bytes) -> list[bytes]:
        assert self.net.recorded
        self.seen += 1
        dead = self.seen > self.after and self.net.recorded[-1].path in self.paths
        return [] if dead else [data]


@pytest.mark.parametrize("paths", [2, 3, 16])
def test_data_is_spread_over_all_paths(paths: int) -> None:
    net = SimNetwork(2, paths=paths, recorded=[], grant=1 << 20)
    parts = draw("float32", 2, 60_000, 1)
    expected = rank_ordered(parts, "float32", "sum")
    net.submit_all(1, parts)
    net.run()
    assert all((tensor == expected).all() for tensor in parts)
    used = Counter(c.path for c in net.recorded or () if c.data[1] == Kind.DATA)
    assert set(used) == set(range(paths))
    assert max(used.values()) < 3 * min(used.values())


@pytest.mark.parametrize("after", [0, 300])
@pytest.mark.parametrize("path", [0, 1])
def test_a_dead_path_does_not_end_the_operation(path: int, after: int) -> None:
    net = SimNetwork(2, SimLink(delay=200e-6), paths=2)
    net.tamper = DeadPath(net, path, after=after)
    parts = draw("float32", 2, 30_000, 1)
    expected = rank_ordered(parts, "float32", "sum")
    net.submit_all(1, parts)
    net.run(until=5.0)
    assert all((tensor == expected).all() for tensor in parts)
    assert not any(session.broken for session in net.sessions)


def up(net: SimNetwork, path: int) -> list[bool]:
    return [net.sessions[rank].flows[1 - rank].paths.tx[path].up for rank in range(2)]


def test_a_path_that_comes_back_carries_data_again() -> None:
    net = SimNetwork(2, SimLink(delay=200e-6), paths=2)
    net.tamper = DeadPath(net, 1, after=100)
    for number in range(1, 16):
        parts = draw("float32", 2, 5_000 if number < 15 else 60_000, number)
        expected = rank_ordered(parts, "float32", "sum")
        net.submit_all(number, parts)
        net.run(until=5.0)
        assert all((tensor == expected).all() for tensor in parts)
        if net.counted("path_down") == 2:  # one per direction; it stays down while it is dead
            net.tamper = None
    assert net.tamper is None
    assert up(net, 1) == [True, True]
    late = (net.recorded or [])[-1000:]
    assert {c.path for c in late if c.data[1] == Kind.DATA} == {0, 1}


def test_all_paths_dead_is_a_lost_peer() -> None:
    net = SimNetwork(2, paths=2)
    net.submit_all(1, draw("float32", 2, 10_000, 1))
    net.cut.add(1)
    net.run()
    assert net.failed(0)[1].code == "peer_lost"
    assert "on 2 paths" in net.failed(0)[1].text


def test_a_path_is_not_taken_for_dead_because_the_job_is_idle() -> None:
    net = SimNetwork(2, SimLink(loss=0.05), paths=3)
    for number in range(1, 6):
        parts = draw("float32", 2, 100, number)
        net.submit(0, number, parts[0])
        net.run(until=2.0)
        net.now += 2.0
        net.submit(1, number, parts[1])
        net.run()
    assert net.counted("path_down") == 0


@pytest.mark.parametrize("one_shot", [False, True])
def test_data_on_a_quicker_path_does_not_overtake_its_ready(one_shot: bool) -> None:
    net = SimNetwork(3, paths=2, detour={0: 2e-3}, one_shot=one_shot, recorded=[])
    for number, count in enumerate((100, 1000, 20_000, 100, 20_000), 1):
        parts = draw("float32", 3, count, number)
        expected = rank_ordered(parts, "float32", "sum")
        net.submit_all(number, parts)
        net.run()
        assert all((part == expected).all() for part in parts)
    assert not net.counted("unready")
    assert not any(
        net.done(rank)[number].stats.retransmitted for rank in range(3) for number in range(1, 6)
    )


def test_copies_of_a_ready_are_not_answered_and_repetitions_are() -> None:
    net = SimNetwork(2, paths=2, recorded=[])
    net.submit_all(1, draw("float32", 2, 100, 1))
    net.run()
    kinds = [c.data[1] for c in net.recorded or ()]
    assert kinds.count(Kind.READY) == 4
    assert Kind.READY_ACK not in kinds
    net.tamper = lambda _s, _t, data: [] if data[1] == Kind.DATA else [data]
    net.submit_all(2, draw("float32", 2, 100, 2), deadline=0.2)
    net.run()
    kinds = [c.data[1] for c in net.recorded or ()]
    assert 1 <= kinds.count(Kind.READY_ACK) <= 4  # as nothing else can tell


@pytest.mark.parametrize("after", [0, 60, 200])
@pytest.mark.parametrize("dead", [(0,), (0, 1), (1, 3), (0, 1, 2, 3)])
def test_paths_that_die_together_are_passed_over_within_some_round_trips(
    dead: tuple[int, ...], after: int
) -> None:
    """A link carries several paths. It was found dead by a look that is taken four times in a
    peer timeout, and meanwhile questions went out on one dead path after the other: 0.65 s."""
    net = SimNetwork(2, SimLink(delay=500e-6, rate=4000.0, queue=200), paths=2 * len(dead), seed=1)
    for number in range(1, 4):
        net.submit_all(number, draw("float32", 2, 12_000, number))
        net.run()
    net.tamper = DeadPath(net, *dead, after=after)
    begin = net.now
    net.submit_all(4, draw("float32", 2, 12_000, 4))
    net.run(until=5, enough=partial(net.ended, 4))
    assert net.ended(4)
    assert net.now - begin < 0.4
