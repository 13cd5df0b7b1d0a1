"""ICMP port unreachable is a sign of death for flows to the engine that a quoted token names."""

from random import Random

import numpy as np

from dlcp_lab.simulation.network import SimNetwork
from dlcpd.core.wire.header import Header, Kind
from dlcpd.io.discovery.closed_ports import SIGN, ClosedPorts
from dlcpd.io.discovery.icmp import IcmpNews


def waiting() -> SimNetwork:
    """Rank 0 waits for the others."""
    net = SimNetwork(4, peer_timeout=30.0)
    net.submit(0, 1, np.zeros(100, np.float32))
    net.run(until=0.01)
    return net


def known(net: SimNetwork) -> ClosedPorts:
    """The flows of rank 0; ranks 1 and 2 are on one engine, rank 3 is on another."""
    ports = ClosedPorts(net.endpoints[0].sessions)
    for rank, flow in net.sessions[0].flows.items():
        flow.address = "10.0.0.1:4040" if rank < 3 else "10.0.0.3:4040"
        ports.add(flow)
    return ports


def refused(token: int) -> IcmpNews:
    return IcmpNews(Header(Kind.PING, token).pack(), "10.0.0.1", 0, refused=True)


def signs(net: SimNetwork) -> list[str]:
    return [flow.sign for flow in net.sessions[0].flows.values()]


def test_every_flow_to_a_closed_port_learns_of_it() -> None:
    """A host sends few ICMP messages in a second: one must do for all ranks on an engine."""
    net = waiting()
    ports = known(net)
    assert ports.on_refused(refused(net.sessions[0].flows[1].token_out), net.now)
    assert signs(net) == [SIGN, SIGN, ""]


def test_a_message_without_a_token_of_ours_is_nobodys() -> None:
    net, rng = waiting(), Random(1)
    ports = known(net)
    tokens = [flow.token_out for flow in net.sessions[0].flows.values()]
    token = tokens[0]
    for bit in [bit for bit in range(64) if token ^ 1 << bit not in tokens]:
        assert not ports.on_refused(refused(token ^ 1 << bit), net.now)
    for length in range(40):
        short = refused(token).quoted[:length]
        assert not ports.on_refused(IcmpNews(short, "10.0.0.1", 0, refused=True), net.now)
        noise = IcmpNews(rng.randbytes(length * 4), "10.0.0.1", 0, refused=True)
        assert not ports.on_refused(noise, net.now)
    assert signs(net) == ["", "", ""]


def test_a_flow_that_is_forgotten_gets_no_signs() -> None:
    net = waiting()
    ports = known(net)
    for flow in net.sessions[0].flows.values():
        ports.forget(flow)
    for flow in net.sessions[0].flows.values():
        assert not ports.on_refused(refused(flow.token_out), net.now)


def test_forged_messages_end_nothing_while_the_peer_answers() -> None:
    """A forger that knows the token, which an attacker off the path does not."""
    net = waiting()
    ports = known(net)
    token = net.sessions[0].flows[1].token_out
    for _ in range(1000):
        assert ports.on_refused(refused(token), net.now)
        net.run(until=0.01)
        net.now += 0.01
    assert net.sessions[0].broken is None
    for rank in (1, 2, 3):
        net.submit(rank, 1, np.zeros(100, np.float32))
    net.run()
    assert net.ended(1)


def test_a_closed_port_and_silence_end_the_session_within_a_second() -> None:
    net = waiting()
    ports = known(net)
    net.cut.add(1)
    began = net.now
    assert ports.on_refused(refused(net.sessions[0].flows[1].token_out), net.now)
    net.run(until=1.0, enough=lambda: net.sessions[0].broken is not None)
    assert net.sessions[0].broken is not None
    code, text = net.sessions[0].broken
    assert code == "peer_lost"
    assert SIGN in text
    assert net.now - began < 1.0
