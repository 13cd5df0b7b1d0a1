"""Many operations in flight: each ends for itself, in whatever order the network allows."""

import numpy as np
import pytest

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcp_lab.simulation.reference import copies, draw, draw_whole, rank_ordered
from dlcpd.core.session.events import OperationDone
from dlcpd.core.wire.header import Header


def completed(net: SimNetwork, rank: int) -> list[int]:
    return [e.ticket for e in net.events[rank] if isinstance(e, OperationDone)]


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_many_at_once(loss: float, in_place: bool) -> None:
    net = SimNetwork(3, SimLink(loss=loss, jitter=40e-6), seed=1, segment_size=64, chunk_segments=8)
    parts = {number: draw("float32", 3, 1 + number * 7, number) for number in range(1, 26)}
    held = {number: copies(tensors) for number, tensors in parts.items()}
    for number, tensors in held.items():
        net.submit_all(number, tensors, in_place=in_place)
    net.run()
    for number, tensors in held.items():
        expected = rank_ordered(parts[number], "float32", "sum")
        assert all((tensor == expected).all() for tensor in tensors)
    for rank in range(3):
        assert sorted(completed(net, rank)) == list(range(1, 26))


def test_a_late_operation_overtakes_one_that_is_being_retransmitted() -> None:
    def tamper(source: int, target: int, data: bytes) -> list[bytes]:
        header = Header.unpack_untrusted(data)
        first_pass = net.is_contribution(source, target, data) and not header.round
        return [] if header.operation == 1 and first_pass else [data]

    net = SimNetwork(2)
    net.tamper = tamper
    net.submit_all(1, draw("float32", 2, 900, 1))  # both fit into the first window
    net.submit_all(2, draw("float32", 2, 900, 2))
    net.run()
    assert completed(net, 0) == completed(net, 1) == [2, 1]


def test_ranks_out_of_step_meet() -> None:
    """One rank submits everything at once, the other each operation after the last."""
    net = SimNetwork(2, seed=3)
    parts = {number: draw_whole(2, 3000, number) for number in range(1, 11)}
    for number, (first, _) in parts.items():
        net.submit(0, number, first)
    for number, (first, second) in parts.items():
        expected = second + draw_whole(2, 3000, number)[0]
        net.submit(1, number, second)
        net.run(until=0.05)
        net.now += 0.05
        assert (first == expected).all()
        assert (second == expected).all()
    assert completed(net, 0) == completed(net, 1) == list(range(1, 11))


def test_a_rank_that_owns_nothing_and_one_that_owns_all() -> None:
    net = SimNetwork(4)
    held = [np.full(3, float(rank), np.float32) for rank in range(4)]
    net.submit_all(1, held)
    net.run()
    assert all((tensor == 6).all() for tensor in held)
    assert net.ended(1)
