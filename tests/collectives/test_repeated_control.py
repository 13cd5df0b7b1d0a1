"""What somebody sends again, during an operation or later: nothing waits, nothing changes."""

import numpy as np

from dlcp_lab.simulation.network import SimNetwork, as_received
from dlcpd.core.wire.header import HEADER_SIZE, Header, Kind

WINDOW = slice(HEADER_SIZE + 4, HEADER_SIZE + 8)  # of a CREDIT


def said(net: SimNetwork, kind: Kind) -> list[bytes]:
    """Datagrams of a kind that rank 0 was sent."""
    return [c.data for c in net.recorded or () if c.target == 0 and c.data[1] == kind]


def give(net: SimNetwork, data: bytes) -> None:
    net.endpoints[0].receive(as_received([data], 0, net), net.now)


def after_an_operation() -> SimNetwork:
    net = SimNetwork(2, recorded=[])
    net.submit_all(1, [np.ones(20_000, np.float32) for _ in range(2)])
    net.run()
    return net


def test_an_old_window_is_not_taken_for_the_present_one() -> None:
    net = after_an_operation()
    window = net.sessions[0].flows[1].window
    first, last = said(net, Kind.CREDIT)[0], said(net, Kind.CREDIT)[-1]
    give(net, first[: WINDOW.start] + bytes([9, 0, 0, 0]) + first[WINDOW.stop :])
    assert net.sessions[0].flows[1].window == window
    give(net, last[: WINDOW.start] + bytes([9, 0, 0, 0]) + last[WINDOW.stop :])
    assert net.sessions[0].flows[1].window == 9  # else the test would prove nothing


def test_the_last_credit_again_is_no_long_round_trip() -> None:
    net = after_an_operation()
    [space] = [s for s in net.sessions[0].flows[1].paths.tx[0].spaces.values() if s.sent]
    before = space.rtt.smoothed, space.rtt.latest
    net.now += 3.0
    for data in said(net, Kind.CREDIT):
        give(net, data)
    assert (space.rtt.smoothed, space.rtt.latest) == before


def test_duplicates_do_not_put_off_a_retransmission() -> None:
    net = SimNetwork(2, recorded=[])
    lost: list[bytes] = []

    def tamper(source: int, _target: int, data: bytes) -> list[bytes]:
        header = Header.unpack_untrusted(data)
        if source == 1 and header.kind is Kind.DATA and header.segment == 3 and not lost:
            lost.append(data)
            return []
        return [data]

    net.tamper = tamper
    net.submit_all(1, [np.ones(2000, np.float32) for _ in range(2)])
    begun = net.now
    for step in range(300):
        net.run(until=begun + step * 1e-4 - net.now)
        net.now = max(net.now, begun + step * 1e-4)
        if net.ended(1):
            break
        for data in said(net, Kind.DATA)[:2]:
            give(net, data)
    assert lost and net.ended(1)
    assert net.now - begun < 30e-3
