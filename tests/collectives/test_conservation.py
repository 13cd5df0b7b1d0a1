"""P4: nothing is lost for ever. Delivered + residual = produced, to the last bit.

All gradients here are whole numbers so small that every sum is exact: one segment
forgotten or added twice shows.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcp_lab.simulation.reference import Tensor, copies, draw_whole
from dlcpd.contract.errors import OperationAborted
from dlcpd.core.wire.control import body_untrusted, unpack_transfers_untrusted
from dlcpd.core.wire.header import Header, Kind
from dlcpd.numerics.returning import add_back

NAME = "bucket0"


def kept(net: SimNetwork, rank: int, name: str, count: int) -> Tensor:
    """The residual of a rank, laid out as its tensor; it stays in the store."""
    tensor, key = np.zeros(count, np.float32), (name, "float32", count)
    holes = net.accounts[rank].residuals.take(key)
    add_back(tensor.view(np.uint8), holes, "float32")
    net.accounts[rank].residuals.put(key, holes)
    return tensor


def kept_by_all(net: SimNetwork, name: str, count: int) -> Tensor:
    total: Tensor = np.sum([kept(net, r, name, count) for r in range(net.world_size)], axis=0)
    return total


def produce(net: SimNetwork, operations: int, count: int, *, at_once: bool = False) -> int:
    """Run `operations` of one name; check conservation after each; returns segments waived."""
    produced, delivered = np.zeros(count, np.float64), np.zeros(count, np.float64)
    held = {}
    for number in range(1, operations + 1):
        parts = draw_whole(net.world_size, count, number)
        held[number] = copies(parts)
        produced += np.sum(parts, axis=0)
        net.submit_all(number, held[number], max_loss=0.25, name=NAME)
        if not at_once:
            net.run()
            delivered += held[number][0]
            assert (delivered + kept_by_all(net, NAME, count) == produced).all()
    net.run()
    if at_once:
        delivered = np.sum([tensors[0] for tensors in held.values()], axis=0, dtype=np.float64)
        assert (delivered + kept_by_all(net, NAME, count) == produced).all()
    stats = [done.stats for rank in range(net.world_size) for done in net.done(rank).values()]
    assert len(stats) == operations * net.world_size
    assert sum(s.lost for s in stats) == sum(s.waived for s in stats)
    return sum(s.waived for s in stats)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "link",
    [
        pytest.param(SimLink(loss=0.02), id="2 %"),
        pytest.param(SimLink(loss=0.2, duplicate=0.05, jitter=40e-6), id="20 %, duplicates"),
        pytest.param(SimLink(loss=0.05, jitter=5e-3), id="5 %, arrivals after the offer"),
    ],
)
def test_several_operations_of_one_name(link: SimLink, seed: int) -> None:
    net = SimNetwork(3, link, seed=seed, segment_size=64, chunk_segments=20, paths=2)
    assert produce(net, 3, 2500)


def test_operations_of_one_name_in_flight_at_once() -> None:
    net = SimNetwork(3, SimLink(loss=0.1, jitter=1e-3), seed=1, segment_size=64, chunk_segments=20)
    assert produce(net, 4, 3000, at_once=True)


@given(
    st.integers(2, 4),
    st.integers(1, 2500),
    st.sampled_from([0.02, 0.1, 0.3]),
    st.sampled_from([0.0, 100e-6, 2e-3, 10e-3]),
    st.integers(0, 1 << 16),
)
@settings(max_examples=20)
def test_any_job_on_any_network(
    world: int, count: int, loss: float, jitter: float, seed: int
) -> None:
    link = SimLink(loss=loss, jitter=jitter, duplicate=0.02)
    net = SimNetwork(world, link, seed=seed, segment_size=64, chunk_segments=9)
    produce(net, 3, count)


def test_an_exact_operation_brings_the_residual_home() -> None:
    net = SimNetwork(2, SimLink(loss=0.2), seed=2, segment_size=64, chunk_segments=20)
    first = draw_whole(2, 2000, 1)
    produced = np.sum(first, axis=0)
    net.submit_all(1, first, max_loss=0.3, name=NAME)
    net.run()
    assert net.accounts[0].residuals.size
    zeros = [np.zeros(2000, np.float32) for _ in range(2)]
    net.submit_all(2, zeros, name=NAME)
    net.run()
    assert (first[0] + zeros[0] == produced).all()
    assert sum(net.done(rank)[2].stats.reapplied for rank in range(2)) == sum(
        net.done(rank)[1].stats.waived for rank in range(2)
    )
    assert not any(accounts.residuals.size for accounts in net.accounts)


def test_names_do_not_share_a_residual() -> None:
    net = SimNetwork(2, SimLink(loss=0.2), seed=2, segment_size=64, chunk_segments=20)
    net.submit_all(1, draw_whole(2, 2000, 1), max_loss=0.3, name="one")
    net.run()
    before = kept_by_all(net, "one", 2000)
    assert before.any()
    net.submit_all(2, draw_whole(2, 2000, 2), max_loss=0.3, name="two")
    net.run()
    assert (kept_by_all(net, "one", 2000) == before).all()


def test_a_failed_operation_gives_the_residual_back() -> None:
    net = SimNetwork(2, SimLink(loss=0.2), seed=2, segment_size=64, chunk_segments=20)
    net.submit_all(1, draw_whole(2, 2000, 1), max_loss=0.3, name=NAME)
    net.run()
    before = [kept(net, rank, NAME, 2000) for rank in range(2)]
    assert before[0].any()
    net.submit(0, 2, draw_whole(1, 2000, 5)[0], max_loss=0.3, name=NAME, deadline=0.5)
    assert not kept(net, 0, NAME, 2000).any()  # it travels with the operation
    net.run()
    assert net.failed(0)[2].code == "deadline_exceeded"
    assert (kept(net, 0, NAME, 2000) == before[0]).all()
    assert (kept(net, 1, NAME, 2000) == before[1]).all()


def test_an_operation_that_is_done_does_not_give_it_back_twice() -> None:
    """Done but not released, then aborted by a peer: its residual was delivered."""
    net = SimNetwork(2, SimLink(loss=0.2), seed=2, segment_size=64, chunk_segments=20)
    net.submit_all(1, draw_whole(2, 2000, 1), max_loss=0.3, name=NAME)
    net.run()
    results = set[tuple[int, int]]()  # (receiver, transfer) of what a rank has reduced

    def without_complete(source: int, target: int, data: bytes) -> list[bytes]:
        header = Header.unpack_untrusted(data)
        if net.is_result(source, target, data):
            results.add((target, header.transfer))
        if header.kind is not Kind.COMPLETE:
            return [data]
        told = unpack_transfers_untrusted(body_untrusted(data))
        return [] if any((source, transfer) in results for transfer in told) else [data]

    net.tamper = without_complete
    net.submit_all(2, draw_whole(2, 2000, 2), max_loss=0.3, name=NAME, in_place=False)
    net.run(until=1.0)
    assert not net.done(0)[2].released
    after = kept(net, 0, NAME, 2000)
    net.abort(0, 2, OperationAborted("rank 1 aborted"))
    assert (kept(net, 0, NAME, 2000) == after).all()
