"""P2's proof: a result that differs on one rank is found, whatever made it differ."""

from collections.abc import Iterable

import pytest

from dlcpd.core.wire.header import HEADER_SIZE, Header
from tests.sim.network import Link, SimNetwork
from tests.sim.reference import draw


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


PERFECT = Link()


def network(world: int, link: Link = PERFECT, *, tamper: FlipResult, seed: int = 0) -> SimNetwork:
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
        assert "operation 1" in text
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
    net = network(2, Link(loss=loss), seed=which, tamper=FlipResult(which))
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
    net = SimNetwork(3, Link(loss=0.1, jitter=50e-6), seed=5, paths=2)
    for step in range(4):
        for bucket in range(6):
            number = 6 * step + bucket + 1
            net.submit_all(
                number, draw("float32", 3, 700, number), max_loss=0.2 * (bucket % 2),
                name=f"bucket{bucket}", in_place=bool(bucket % 3),
            )  # fmt: skip
        net.run()
    assert all(len(net.done(rank)) == 24 for rank in range(3))
    assert not any(session.broken for session in net.sessions)
