"""Bounded loss: replicas stay equal (P2), the bound holds (P3), and the victims change (P5)."""

import math
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcp_lab.simulation.reference import copies, draw, draw_whole, rank_ordered
from dlcpd.core.wire.header import HEADER_SIZE, Header, Kind
from dlcpd.numerics.elements import narrow, widen

NAME = "layer.weight"
SEGMENT, CHUNK_SEGMENTS = 64, 40
ELEMENTS = SEGMENT // 4  # of a segment of float32

NETWORKS = [
    pytest.param(SimLink(loss=0.01), 1, id="1 %"),
    pytest.param(SimLink(loss=0.2), 1, id="20 %"),
    pytest.param(SimLink(loss=0.05, jitter=40e-6, duplicate=0.02), 2, id="5 % on two paths"),
    pytest.param(SimLink(loss=0.05, jitter=4e-3), 2, id="late arrivals"),
]


def network(link: SimLink, paths: int, *, world: int = 3, seed: int = 0) -> SimNetwork:
    return SimNetwork(
        world, link, seed=seed, segment_size=SEGMENT, chunk_segments=CHUNK_SEGMENTS, paths=paths
    )


def header_of(data: bytes) -> Header:
    return Header.unpack_untrusted(data)


# --- P2 --------------------------------------------------------------------------------


@pytest.mark.parametrize("fill", ["residual", "zero"])
@pytest.mark.parametrize(("link", "paths"), NETWORKS)
def test_all_ranks_hold_the_same_bits(link: SimLink, paths: int, fill: str) -> None:
    lost = 0
    for seed, dtype in enumerate(("float32", "float64", "float16", "bfloat16")):
        net = network(link, paths, world=2 + seed % 3, seed=seed)
        for number, op in enumerate(("sum", "avg"), 1):
            held = draw(dtype, net.world_size, 1501, seed + number)
            net.submit_all(number, held, dtype=dtype, op=op, max_loss=0.2, name=NAME, fill=fill)
            net.run()
            assert len({tensor.tobytes() for tensor in held}) == 1
        done = [net.done(rank)[number] for rank in range(net.world_size) for number in (1, 2)]
        lost += sum(d.stats.lost for d in done)
        assert sum(d.stats.lost for d in done) == sum(d.stats.waived for d in done)
        assert not any(session.broken for session in net.sessions)
    assert lost  # else this tested nothing


def test_zero_fill_forgets() -> None:
    net = network(SimLink(loss=0.2), 1)
    net.submit_all(1, draw_whole(3, 4000, 1), max_loss=0.3, name=NAME, fill="zero")
    net.run()
    assert sum(net.done(rank)[1].stats.waived for rank in range(3))
    assert all(accounts.residuals.size == 0 for accounts in net.accounts)


# --- P3 --------------------------------------------------------------------------------


@pytest.mark.parametrize("max_loss", [0.03, 0.1, 0.5])
@pytest.mark.parametrize(("link", "paths"), NETWORKS)
def test_the_bound_holds_per_sender_and_transfer(
    link: SimLink, paths: int, max_loss: float
) -> None:
    net = network(link, paths, seed=int(100 * max_loss))
    net.submit_all(1, draw_whole(3, 6000, 1), max_loss=max_loss, name=NAME)
    net.run()
    bound = int(max_loss * CHUNK_SEGMENTS)
    for rank, accounts in enumerate(net.accounts):
        as_owner = [row for row in accounts.ledger if row.owner == rank]
        assert len({(row.sender, row.transfer) for row in as_owner}) == len(as_owner)
        assert all(0 < row.segments <= bound for row in as_owner)
        assert sum(row.segments for row in as_owner) == net.done(rank)[1].stats.lost


@pytest.mark.parametrize(("link", "paths"), NETWORKS)
def test_both_ends_book_the_same_losses(link: SimLink, paths: int) -> None:
    """P9. However often an offer was repeated, and on which path each segment had been sent."""
    net = network(link, paths, seed=3)
    net.submit_all(1, draw_whole(3, 9000, 1), max_loss=0.2, name=NAME)
    net.run()
    books: list[Counter[tuple[int, int, int]]] = [Counter(), Counter()]
    for rank, accounts in enumerate(net.accounts):
        for row in accounts.ledger:
            assert (row.operation, row.name) == (1, NAME)
            books[row.sender == rank][row.sender, row.owner, row.transfer] += row.segments
            if row.sender == rank:
                assert sum(row.paths.values()) == row.segments
                assert row.paths.keys() <= set(range(paths))
    assert books[0] == books[1]
    assert books[0]


def test_exact_operations_lose_nothing_beside_bounded_ones() -> None:
    net = network(SimLink(loss=0.1), 1)
    bounded, exact = draw_whole(3, 4000, 1), draw_whole(3, 4000, 2)
    expected = rank_ordered(exact, "float32", "sum")
    net.submit_all(1, bounded, max_loss=0.3, name=NAME)
    net.submit_all(2, exact)
    net.run()
    assert all((tensor == expected).all() for tensor in exact)


@pytest.mark.parametrize("seed", range(4))
def test_exempt_ranges_always_arrive(seed: int) -> None:
    net = network(SimLink(loss=0.2, jitter=40e-6), 1, seed=seed)
    parts = draw_whole(3, 6000, seed)
    expected, held = rank_ordered(parts, "float32", "sum"), copies(parts)
    exempt = [[0, 100], [4000, 4004], [9000, 13_000]]  # bytes
    net.submit_all(1, held, max_loss=0.5, name=NAME, exempt=exempt)
    net.run()
    for low, high in exempt:
        span = slice(low // 4, high // 4)
        assert (held[0][span] == expected[span]).all()
    assert (held[0] != expected).any()  # other segments were waived


def test_a_wholly_silent_sender_never_completes() -> None:
    net = network(SimLink(), 1)
    net.tamper = lambda s, t, data: [] if s == 1 and net.is_contribution(s, t, data) else [data]
    # Two seconds: 20,000 round trips, and twice as long as a peer may be silent.
    net.submit_all(1, draw_whole(3, 6000, 1), max_loss=0.5, name=NAME, deadline=2.0)
    net.run()
    assert not any(net.done(rank) for rank in (0, 2))
    for rank in (0, 2):
        failed = net.failed(rank)[1]
        assert failed.code == "deadline_exceeded"
        assert "rank(s) 1" in failed.text


def test_nothing_is_waived_without_the_senders_consent() -> None:
    """The sender's permits and ACKs are lost: the owner must not go on alone."""
    net = network(SimLink(loss=0.05), 1)
    silent = (Kind.PERMIT, Kind.ACK)
    net.tamper = lambda s, _t, data: [] if s == 1 and data[1] in silent else [data]
    net.submit_all(1, draw_whole(3, 6000, 1), max_loss=0.5, name=NAME, deadline=5.0)
    net.run()
    assert not any(row.sender == 1 for rank in (0, 2) for row in net.accounts[rank].ledger)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_never_waived(dtype: str, bad: float) -> None:
    """Every rank's loss scaler must see the overflow, and no residual may carry it on."""
    kind = np.float64 if dtype == "float64" else np.float32
    for seed in range(3):
        net = network(SimLink(loss=0.3), 1, world=2, seed=seed)
        parts = draw(dtype, 2, 3000, seed)
        where = np.random.default_rng(seed).choice(3000, 12, replace=False)
        for part in parts:
            part[where] = narrow(np.array([bad], kind), dtype)
        net.submit_all(1, parts, dtype=dtype, max_loss=0.5, name=NAME)
        net.run()
        assert sum(net.done(rank)[1].stats.waived for rank in range(2))
        for tensor in parts:
            assert not np.isfinite(widen(tensor, dtype)[where]).any()
        for accounts in net.accounts:
            for hole in accounts.residuals.take((NAME, dtype, 3000)):
                assert np.isfinite(hole.values).all()


# --- P5 --------------------------------------------------------------------------------


class CutTail:
    """A network that loses the last `count` datagrams of every first pass."""

    def __init__(self, net: SimNetwork, segments: int, count: int) -> None:
        self.net, self.keep = net, segments - count
        self.seen = Counter[tuple[int, int, int, int]]()

    def __call__(self, source: int, target: int, data: bytes) -> Iterable[bytes]:
        header = header_of(data)
        if header.round or not self.net.is_contribution(source, target, data):
            return [data]
        flow = (source, target, header.operation, header.transfer)
        self.seen[flow] += 1
        return [data] if self.seen[flow] <= self.keep else []


def test_the_same_bytes_are_not_always_the_victims() -> None:
    segments, operations = 16, 60
    net = SimNetwork(2, segment_size=SEGMENT, chunk_segments=segments)
    net.tamper = CutTail(net, segments, 2)
    victims: Counter[int] = Counter()
    for number in range(1, operations + 1):
        parts = [np.ones(2 * segments * ELEMENTS, np.float32) for _ in range(2)]
        net.submit_all(number, parts, max_loss=2 / segments, name=NAME, fill="zero")
        net.run()
        lacking = np.flatnonzero(parts[0][: segments * ELEMENTS : ELEMENTS] != 2)
        victims.update(lacking.tolist())
    assert sum(victims.values()) == 2 * operations
    assert set(victims) == set(range(segments))
    assert max(victims.values()) < operations / 3


LOSSLESS = [
    pytest.param({"link": SimLink(delay=d), "grant": g}, id=f"{d * 1e3:g} ms, {g} B of credit")
    for d in (50e-6, 2e-3, 20e-3)
    for g in (20 * (SEGMENT + HEADER_SIZE), 1 << 20)
] + [
    pytest.param({"link": SimLink(), "rate_bps": 2e6}, id="capped"),
    pytest.param({"link": SimLink(rate=5000.0, queue=10_000)}, id="slow"),
    pytest.param({"link": SimLink(jitter=60e-6), "paths": 3}, id="reordered"),
]


@pytest.mark.parametrize("options", LOSSLESS)
def test_nothing_is_waived_or_sent_twice_while_data_still_flows(
    options: dict[str, object],
) -> None:
    net = SimNetwork(2, segment_size=SEGMENT, chunk_segments=100, **options)  # type: ignore[arg-type]
    parts = draw_whole(2, 8000, 1)
    expected = rank_ordered(parts, "float32", "sum")
    net.submit_all(1, parts, max_loss=0.2, name=NAME)
    net.run()
    assert (parts[0] == expected).all()
    for rank in range(2):
        stats = net.done(rank)[1].stats
        assert (stats.lost, stats.waived, stats.retransmitted) == (0, 0, 0)
