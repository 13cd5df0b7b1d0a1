"""What the transport notes of operations: nothing unless it is asked, and then all that became."""

from collections import Counter

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcp_lab.simulation.reference import draw_whole
from dlcpd.contract.errors import OperationAborted

SEGMENT, CHUNK_SEGMENTS, COUNT = 64, 40, 4000


def network(*, seed: int = 0) -> SimNetwork:
    link = SimLink(loss=0.1)
    return SimNetwork(2, link, seed=seed, segment_size=SEGMENT, chunk_segments=CHUNK_SEGMENTS)


def all_reduce(net: SimNetwork, number: int = 1) -> None:
    net.submit_all(number, draw_whole(2, COUNT, number), max_loss=0.2, name="layer")
    net.run()


def test_nothing_is_noted_unless_it_was_switched_on() -> None:
    net = network()
    all_reduce(net)
    assert net.done(0)
    assert not any(len(endpoint.trace) for endpoint in net.endpoints)


def test_events_add_up_to_what_the_operation_counted() -> None:
    net = network()
    for endpoint in net.endpoints:
        endpoint.trace.start()
    all_reduce(net)
    for rank, endpoint in enumerate(net.endpoints):
        events = endpoint.trace.take(100_000)
        stats = net.done(rank)[1].stats
        assert {event[2:6] for event in events} == {(net.sessions[rank].number, 0, -1, 1)}
        whats = Counter(event[1] for event in events)
        assert whats["ready"] == whats["result"] == 1
        batches = [event for event in events if event[1] == "sent"]
        again = sum(event[10] for event in batches if event[11])
        assert again == stats.retransmitted > 0
        assert sum(event[8] for event in events if event[1] == "taken") == stats.retransmitted
        assert sum(event[8] for event in events if event[1] == "agreed") == stats.waived > 0
        missing = sum(event[9] for event in events if event[1] == "received")
        assert missing == stats.lost > 0
        assert whats["reduced"] >= 1


def test_a_failure_is_noted_with_its_code() -> None:
    net = network()
    net.endpoints[0].trace.start()
    net.submit(0, 1, draw_whole(2, COUNT, 1)[0])
    net.abort(0, 1, OperationAborted("rank 1 aborted"))
    [failed] = [event for event in net.endpoints[0].trace.take(100) if event[1] == "failed"]
    assert failed[6] == OperationAborted.code
