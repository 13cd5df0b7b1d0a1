"""P2's proof: a result that differs on one rank is found, whatever made it differ."""

from collections.abc import Iterable

import pytest

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcp_lab.simulation.reference import draw
from dlcpd.contract.errors import PeerLost
from dlcpd.core.session.digests import DigestBook
from dlcpd.core.session.events import Concluded
from dlcpd.core.session.stream_ids import EVERYBODY
from dlcpd.core.wire.control import MAX_DIGEST_ROWS
from dlcpd.core.wire.header import HEADER_SIZE, Header, Kind

PATIENCE = 2.0  # seconds


class FlipResult:
    """A network (or memory) that changes one bit of some results on their way to rank 1."""

    def __init__(self, *operations: int, offset: int = 0, bit: int = 0) -> None:
        self.operations, self.offset, self.bit = operations, offset, bit
        self.flipped = 0
        self.net: SimNetwork | None = None

    def __call__(self, source: int, target: int, data: bytes) -> Iterable[bytes]:
        header = Header.unpack_untrusted(data)
        assert self.net is not None
        wanted = header.operation in self.operations and target == 1 and not header.segment
        if not wanted or not self.net.is_result(source, target, data):
            return [data]
        if self.net.sent(source, target, header).span.start:  # of the first chunk only
            return [data]
        self.flipped += 1
        changed = bytearray(data)
        changed[HEADER_SIZE + self.offset] ^= 1 << self.bit
        return [bytes(changed)]


PERFECT = SimLink()


def network(
    world: int, link: SimLink = PERFECT, *, tamper: FlipResult, seed: int = 0
) -> SimNetwork:
    net = tamper.net = SimNetwork(world, link, seed=seed, tamper=tamper)
    return net


def run(net: SimNetwork, operations: Iterable[int], **options: object) -> None:
    for number in operations:
        if any(session.broken for session in net.sessions):
            return
        net.submit_all(number, draw("float32", net.world_size, 1000, number), **options)
        net.run()


@pytest.mark.parametrize(("offset", "bit"), [(0, 0), (3, 7), (7, 7), (60, 3)])
@pytest.mark.parametrize("world", [2, 3])
def test_one_bit_on_one_rank_breaks_the_session_at_the_next_operation(
    world: int, offset: int, bit: int
) -> None:
    net = network(world, tamper=FlipResult(1, offset=offset, bit=bit))
    run(net, [1])
    assert not any(session.broken for session in net.sessions)
    net.submit_all(2, draw("float32", world, 1000, 2))
    net.run()
    for rank, session in enumerate(net.sessions):
        code, text = session.broken or ("", "")
        assert code == "replica_divergence"
        assert "operation 1 (sum of float32[1000]" in text
        assert "chunk 0 (bytes 0 to" in text
        assert f"rank {rank} here" in text
        assert net.failed(rank)[2].code == "replica_divergence"


def test_without_the_check_it_goes_unseen() -> None:
    tamper = FlipResult(1)
    net = network(2, tamper=tamper)
    run(net, range(1, 6), digest_every=0)
    assert tamper.flipped
    assert not any(session.broken for session in net.sessions)
    assert all(len(net.done(rank)) == 5 for rank in range(2))


def test_sampled_chunks_find_a_rank_that_keeps_going_wrong() -> None:
    net = network(2, tamper=FlipResult(*range(1, 20)))
    run(net, range(1, 20), digest_every=8)
    assert all(s.broken and s.broken[0] == "replica_divergence" for s in net.sessions)


@pytest.mark.parametrize("which", [1, 3, 8])
@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_any_of_many_operations_in_flight_is_compared(which: int, loss: float) -> None:
    """As in training: a step submits all its buckets before it waits for the first."""
    net = network(2, SimLink(loss=loss), seed=which, tamper=FlipResult(which))
    for step in range(2):
        for bucket in range(8):
            if not any(session.broken for session in net.sessions):
                number = 8 * step + bucket + 1
                net.submit_all(number, draw("float32", 2, 1000, number))
        net.run()
    broken = [session.broken for session in net.sessions if session.broken]
    assert {code for code, _ in broken} == {"replica_divergence"}
    assert len(broken) == 2 or loss  # a READY may be lost; control then tells the other rank


def test_equal_replicas_are_never_accused() -> None:
    net = SimNetwork(3, SimLink(loss=0.1, jitter=50e-6), seed=5, paths=2)
    for step in range(4):
        for bucket in range(6):
            number = 6 * step + bucket + 1
            net.submit_all(
                number,
                draw("float32", 3, 700, number),
                max_loss=0.2 * (bucket % 2),
                name=f"bucket{bucket}",
                in_place=bool(bucket % 3),
            )
        net.run()
    assert all(len(net.done(rank)) == 24 for rank in range(3))
    assert not any(session.broken for session in net.sessions)


class SwapSegments:
    """A network that exchanges two segments of a result, which a sum of words would not see."""

    def __init__(self, operation: int) -> None:
        self.operation, self.swapped = operation, 0
        self.net: SimNetwork | None = None

    def __call__(self, source: int, target: int, data: bytes) -> Iterable[bytes]:
        header = Header.unpack_untrusted(data)
        assert self.net is not None
        if target != 1 or header.operation != self.operation or header.segment > 1:
            return [data]
        if not self.net.is_result(source, target, data):
            return [data]
        self.swapped += 1
        other = header._replace(segment=1 - header.segment)
        return [other.pack() + data[HEADER_SIZE:]]


def test_exchanged_segments_are_found() -> None:
    tamper = SwapSegments(1)
    net = tamper.net = SimNetwork(2, tamper=tamper)
    run(net, [1, 2])
    assert tamper.swapped == 2
    assert all(s.broken and s.broken[0] == "replica_divergence" for s in net.sessions)


# --- the end of a session ---------------------------------------------------------------


def concluded(net: SimNetwork, rank: int) -> list[Concluded]:
    return [event for event in net.events[rank] if isinstance(event, Concluded)]


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_the_last_operation_is_compared_before_the_first_rank_leaves(
    world: int, loss: float
) -> None:
    net = network(world, SimLink(loss=loss), tamper=FlipResult(3), seed=world)
    run(net, [1, 2, 3])
    assert not any(session.broken for session in net.sessions)
    net.sessions[0].conclude(net.now, net.now + PATIENCE)
    net.run()
    assert concluded(net, 0)
    told = [session.broken for session in net.sessions if session.broken]
    assert told and {code for code, _ in told} == {"replica_divergence"}
    assert net.sessions[0].broken and "operation 3" in net.sessions[0].broken[1]


@pytest.mark.parametrize("loss", [0.0, 0.3])
def test_equal_replicas_leave_in_peace(loss: float) -> None:
    net = SimNetwork(3, SimLink(loss=loss), seed=3)
    run(net, range(1, 8))
    for session in net.sessions:
        session.conclude(net.now, net.now + PATIENCE)
        session.conclude(net.now, net.now + PATIENCE)  # asked twice, said once
    net.run(until=1.0)
    assert [len(concluded(net, rank)) for rank in range(3)] == [1, 1, 1]
    assert [concluded(net, rank)[0].unconfirmed for rank in range(3)] == [0, 0, 0]
    assert not any(session.broken for session in net.sessions)


def test_who_leaves_waits_for_a_peer_that_is_not_done_yet() -> None:
    net = SimNetwork(2, tamper=None)
    held: list[bytes] = []

    def hold(source: int, target: int, data: bytes) -> Iterable[bytes]:
        header = Header.unpack_untrusted(data)
        if target == 1 and header.kind is Kind.DATA and net.is_result(source, target, data):
            held.append(data)
            return []
        return [data]

    net.tamper = hold
    net.submit_all(1, draw("float32", 2, 1000, 1), in_place=False)
    net.run(until=0.2, enough=lambda: 1 in net.done(0))
    net.sessions[0].conclude(net.now, net.now + PATIENCE)
    net.run(until=0.1)
    assert held and not concluded(net, 0)
    net.tamper = None
    net.run(until=1.5)
    assert [event.unconfirmed for event in concluded(net, 0)] == [0]


def test_a_peer_that_does_not_answer_is_waited_for_in_vain() -> None:
    net = SimNetwork(2)
    run(net, [1])
    net.cut.add(1)
    net.sessions[0].conclude(net.now, net.now + PATIENCE)
    net.run(until=0.9 * PATIENCE)
    assert not concluded(net, 0)
    net.run(until=0.2 * PATIENCE)
    assert [event.unconfirmed for event in concluded(net, 0)] == [1]


def test_a_peer_that_left_is_not_waited_for() -> None:
    net = SimNetwork(2)
    run(net, [1])
    net.sessions[0].peer_gone(1, PeerLost("rank 1 left"), net.now)
    net.sessions[0].conclude(net.now, net.now + PATIENCE)
    net.run(until=0.1)
    assert [event.unconfirmed for event in concluded(net, 0)] == [0]


def test_what_failed_at_a_peer_is_not_waited_for() -> None:
    net = SimNetwork(2)
    run(net, [1])
    # as if it had failed there
    net.sessions[1].streams.open(0, EVERYBODY).digests = DigestBook()
    net.sessions[0].conclude(net.now, net.now + PATIENCE)
    net.run(until=0.1)
    assert [event.unconfirmed for event in concluded(net, 0)] == [0]


def test_digests_that_are_malformed_are_refused() -> None:
    net = SimNetwork(2)
    for body in (b"x", bytes(16 * (MAX_DIGEST_ROWS + 1)), b"\1\0\0\0\2" + bytes(11)):
        net.inject(0, Header(Kind.DIGESTS, net.token(0, 1)).pack() + body)
    net.run(until=0.1)
    assert net.counted("length") == 2 and net.counted("body") == 1
