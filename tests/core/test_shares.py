"""What sessions of one endpoint get of the time in which it sends."""

from collections import Counter
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from dlcp_lab.simulation.network import SimNetwork
from dlcpd.core.endpoint import Endpoint, PeerSpec
from dlcpd.core.paths.pacing import Pacer
from dlcpd.core.send_scheduler import SendScheduler
from dlcpd.core.session.flow import Flow
from dlcpd.core.session.session import Session
from dlcpd.core.wire.datagram import Transmit

MOST = 100_000  # bytes of a batch
LAST, URGENT = 4, 1  # traffic classes


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Endpoint:
    """Whose flows send batches as large as they may, until their class is None."""

    def transmit(flow: Flow, _now: float, allowance: int) -> Transmit:
        number, size = flow.session.number, min(allowance, MOST)
        return cast(Transmit, SimpleNamespace(size=size, session=number, flow=flow.index))

    monkeypatch.setattr(Flow, "transmit", transmit)
    return Endpoint(1152, 1 << 20, SendScheduler(Pacer(0.0)))


def opened(endpoint: Endpoint, number: int, peers: int, traffic_class: int | None) -> Session:
    specs = [PeerSpec(n, "h", number << 16 | n, number << 17 | n, 1) for n in range(1, peers + 1)]
    session = endpoint.open_session(number, 0, specs, peer_timeout=1.0)
    wants(session, traffic_class)
    return session


def wants(session: Session, traffic_class: int | None) -> None:
    for flow in session.flows.values():
        flow.outgoing.next_class = traffic_class
        if traffic_class is not None:
            flow.agenda.sending[flow.index] = None


def sent(endpoint: Endpoint, turns: int, key: str = "session") -> Counter[int]:
    """Bytes, by session or by flow."""
    total = Counter[int]()
    for _ in range(turns):
        for batch in endpoint.transmit(0.0):
            total[getattr(batch, key)] += batch.size
    return total


@pytest.mark.parametrize("turn", [64 << 10, 4 << 20])
@pytest.mark.parametrize("class_of_many", [LAST, URGENT])
def test_a_session_of_many_flows_gets_no_more_than_one_of_one(
    endpoint: Endpoint, turn: int, class_of_many: int
) -> None:
    endpoint.scheduler.size = turn
    opened(endpoint, 1, 100, class_of_many)
    opened(endpoint, 2, 1, LAST)
    by_session = sent(endpoint, 100)
    assert by_session.total() == 100 * turn
    assert abs(by_session[1] - by_session[2]) <= MOST


def test_flows_of_a_session_get_equal_parts_and_the_urgent_ones_all(endpoint: Endpoint) -> None:
    endpoint.scheduler.size = 64 << 10
    session = opened(endpoint, 1, 3, LAST)
    by_flow = sent(endpoint, 99, "flow")
    assert max(by_flow.values()) - min(by_flow.values()) <= MOST
    assert len(by_flow) == 3
    session.flows[2].outgoing.next_class = URGENT
    assert set(sent(endpoint, 10, "flow")) == {session.flows[2].index}


def test_engines_do_not_all_begin_with_the_same_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    first = []
    for rank in range(4):
        monkeypatch.setattr(
            Flow, "transmit", lambda flow, _now, _allowance: first.append(flow.rank)
        )
        made = Endpoint(1152, 1 << 20, SendScheduler(Pacer(0.0)))
        specs = [PeerSpec(n, "h", 1 << 16 | n, 1 << 17 | n, 1) for n in range(4) if n != rank]
        wants(made.open_session(1, rank, specs, peer_timeout=1.0), LAST)
        list(made.transmit(0.0))
    assert len(set(first)) > 2


def test_who_was_away_does_not_come_back_with_a_claim(endpoint: Endpoint) -> None:
    endpoint.scheduler.size = 64 << 10
    opened(endpoint, 1, 1, LAST)
    other = opened(endpoint, 2, 1, None)
    assert set(sent(endpoint, 1000)) == {1}
    wants(other, LAST)
    by_session = sent(endpoint, 100)
    assert abs(by_session[1] - by_session[2]) <= MOST
    endpoint.close_session(2)
    assert set(sent(endpoint, 10)) == {1}


def test_what_is_left_of_a_turn_and_too_little_for_anybody_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Thousands of flows are not asked whether a few bytes are of use to them."""
    asked = Counter[int]()

    def transmit(flow: Flow, _now: float, allowance: int) -> Transmit | None:
        asked[flow.index] += 1
        if allowance < MOST:
            return None
        return cast(Transmit, SimpleNamespace(size=MOST, flow=flow.index))

    monkeypatch.setattr(Flow, "transmit", transmit)
    endpoint = Endpoint(1152, 1 << 20, SendScheduler(Pacer(0.0)))
    endpoint.scheduler.size = MOST + 1
    opened(endpoint, 1, 100, LAST)
    assert len(list(endpoint.transmit(0.0))) == 1
    assert asked.total() == 2
    assert endpoint.scheduler.more
    assert len(sent(endpoint, 100, "flow")) == 100, "each has its turn"


def test_only_flows_that_have_something_are_looked_at() -> None:
    net = SimNetwork(4)
    net.submit_all(1, [np.ones(10, np.float32) for _ in range(4)])
    net.run()
    for endpoint in net.endpoints:
        agenda = next(iter(endpoint.flows.values())).agenda
        assert not agenda.touched
        assert not agenda.sending
        assert not agenda.expecting
