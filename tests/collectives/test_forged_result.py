"""A datagram that claims to be of a result before its owner can have had what it is made of."""

from dlcp_lab.simulation.network import SimNetwork, as_received
from dlcp_lab.simulation.reference import draw, rank_ordered
from dlcpd.core.wire.header import Header, Kind
from dlcpd.schedules.model import Buffer, Receive

NOWHERE = 4000  # a segment that no transfer here has: the result itself stays as it is


def test_it_does_not_stop_a_contribution_that_is_still_being_sent() -> None:
    net = SimNetwork(2, grant=4000)
    parts = draw("float32", 2, 20_000, 1)
    expected = rank_ordered(parts, "float32", "sum")
    net.submit_all(1, parts)
    net.run(until=2e-4)
    steps = net.programs[0, 1].steps
    results = [s for s in steps if isinstance(s, Receive) and s.span.buffer == Buffer.OUTPUT]
    implying = [step for step in results if step.implies]
    assert implying
    for step in implying:
        forged = Header(Kind.DATA, net.token(0, 1), 1, 0, step.index, NOWHERE, packet_number=1)
        datagram = forged.pack() + bytes(net.segment_size)
        net.endpoints[0].receive(as_received([datagram], 0, net), net.now)
    net.run()
    assert not net.failed(0) and not net.failed(1)
    assert [part.tobytes() for part in parts] == [expected.tobytes()] * 2
