"""Several paths: datagrams are spread over all of them, and numbered on each."""

from collections import Counter

import pytest

from dlcpd.core.wire import DATA_KINDS
from tests.sim.network import Link, SimNetwork
from tests.sim.reference import draw, rank_ordered


class PathDies:
    """A network in which one path goes dead, both ways, after `after` datagrams."""

    def __init__(self, net: SimNetwork, path: int, after: int) -> None:
        self.net, self.path, self.after, self.seen = net, path, after, 0
        net.recorded = []

    def __call__(self, source: int, target: int, data: bytes) -> list[bytes]:
        assert self.net.recorded
        self.seen += 1
        dead = self.seen > self.after and self.net.recorded[-1].path == self.path
        return [] if dead else [data]


@pytest.mark.parametrize("paths", [2, 3, 16])
def test_data_is_spread_over_all_paths(paths: int) -> None:
    net = SimNetwork(2, paths=paths, recorded=[], grant=1 << 20)
    parts = draw("float32", 2, 60_000, 1)
    expected = rank_ordered(parts, "float32", "sum")
    net.submit_all(1, parts)
    net.run()
    assert all((tensor == expected).all() for tensor in parts)
    used = Counter(c.path for c in net.recorded or () if c.data[1] in DATA_KINDS)
    assert set(used) == set(range(paths))
    assert max(used.values()) < 3 * min(used.values())


@pytest.mark.parametrize("after", [0, 300])
@pytest.mark.parametrize("path", [0, 1])
def test_a_dead_path_does_not_end_the_operation(path: int, after: int) -> None:
    net = SimNetwork(2, Link(delay=200e-6), paths=2)
    net.tamper = PathDies(net, path, after)
    parts = draw("float32", 2, 30_000, 1)
    expected = rank_ordered(parts, "float32", "sum")
    net.submit_all(1, parts)
    net.run(until=5.0)
    assert all((tensor == expected).all() for tensor in parts)
    assert not any(session.broken for session in net.sessions)
