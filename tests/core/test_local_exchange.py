"""Flows within a process take turns, and a bug in one is a fault of its sessions."""

from collections import Counter

import pytest

from dlcp_lab.simulation.network import SimNetwork
from dlcpd.core.demultiplexer import Demultiplexer, Fault
from dlcpd.core.inbox import Inbox
from dlcpd.core.local_exchange import LocalExchange
from dlcpd.core.paths.incast import ArrivalRate
from dlcpd.core.session.agenda import Agenda
from dlcpd.core.session.flow import Flow
from dlcpd.core.touched_flows import TouchedFlows
from dlcpd.core.wire.checksum import Keyring
from dlcpd.core.wire.header import Header, Kind
from tests.core.operations import NOW, session


def touched(here: int, there: int) -> TouchedFlows:
    """Flows 1 to `here` to ranks of this process, and `there` ones to other processes."""
    flows = session(here + there + 1).flows
    for index in range(1, here + 1):
        flows[index].twin = flows[index]
    return TouchedFlows(Agenda(touched=set(flows)), flows)


def test_touched_flows_are_divided_by_where_their_peers_are() -> None:
    found = touched(2, 3)
    found.agenda.touched.add(99)  # one that has ended
    found.sort()
    assert (sorted(found.here), sorted(found.there)) == ([1, 2], [3, 4, 5])
    assert not found.agenda.touched
    found.forget(1)
    found.forget(3)
    assert (sorted(found.here), sorted(found.there)) == ([2], [4, 5])


def test_each_turn_begins_with_another_flow() -> None:
    first = []
    for turn in range(4):
        found = touched(3, 0)
        taken = [flow.index for flow in found.take_here(turn)]
        assert sorted(taken) == [1, 2, 3] and not found.here
        first.append(taken[0])
    assert first == [1, 2, 3, 1]


def test_a_bug_is_a_fault_of_both_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    found, faults = touched(1, 0), list[Fault]()
    bug = ValueError("a bug")

    def deliver(_flow: Flow, _now: float, _most: int) -> int:
        raise bug

    monkeypatch.setattr(Flow, "deliver", deliver)
    demultiplexer = Demultiplexer(
        {}, Counter(), Counter(), Keyring(), Inbox(), ArrivalRate(), faults
    )
    exchange = LocalExchange(found, demultiplexer, faults)
    exchange.run(NOW)
    assert faults == [(7, bug), (7, bug)] and not exchange.more


def test_a_datagram_of_a_stranger_is_counted() -> None:
    net = SimNetwork(2)
    endpoint = net.endpoints[0]
    demultiplexer = endpoint._demultiplexer  # noqa: SLF001
    demultiplexer.pass_on(Header(Kind.READY_ACK, 99, 1).pack(), net.now)
    assert endpoint.counters["token"] == 1
    endpoint.close_session(net.sessions[0].number)
    assert not demultiplexer.by_token
    demultiplexer.pass_on(Header(Kind.READY_ACK, net.token(0, 1), 1).pack(), net.now)
    assert endpoint.counters["token"] == 2
