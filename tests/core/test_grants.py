"""The receive buffers of an engine are shared among its senders."""

from math import inf

import pytest

from dlcpd.core.grants import Grants
from dlcpd.core.paths.incast import FEWEST, INITIAL, ArrivalRate, beyond
from tests.core.operations import session

TOTAL = 1 << 24


def test_each_peer_gets_an_equal_part_of_the_buffers() -> None:
    flows = session(5).flows.values()
    Grants(TOTAL, 1 << 30, congestion_control=False, arriving=ArrivalRate()).share(flows)
    assert {(flow.grant, flow.opening) for flow in flows} == {(TOTAL // 4, TOTAL // 4)}


def test_no_peer_gets_more_than_the_largest_window() -> None:
    flows = session(5).flows.values()
    Grants(TOTAL, 1000, congestion_control=True, arriving=ArrivalRate()).share(flows)
    assert {flow.grant for flow in flows} == {1000}


@pytest.mark.parametrize("senders", [0, 1, 4, 1 << 20])
def test_those_that_send_share_the_bandwidth_delay_product(senders: int) -> None:
    flow, *others = session(9).flows.values()
    made = Grants(1 << 30, 1 << 30, congestion_control=True, arriving=ArrivalRate())
    made.renew([flow], [flow, *others], senders)
    assert not any(each.grant or each.opening for each in others), "only those that are answered"
    assert flow.grant == max(INITIAL // max(senders, 1), FEWEST)
    assert flow.opening == INITIAL // 8, "as if all began at once"


@pytest.mark.parametrize(
    ("queues", "wait"), [((10e-3, 8e-3, inf), 8e-3), ((10e-3, 0.0, inf), 0.0), ((inf,) * 3, 0.0)]
)
def test_senders_may_fill_the_time_that_answers_wait_behind_own_data(
    queues: tuple[float, ...], wait: float
) -> None:
    """Of the waits on the ways to all peers, the least is that in this host's own queue."""
    flows = list(session(4).flows.values())
    for flow, queue in zip(flows, queues, strict=True):
        flow.paths.cover, flow.paths.quickest, flow.paths.queue = 7e-3, 1e-3, queue
    arriving = ArrivalRate()
    for number in range(100):
        arriving.on_bytes(20_000, 10.0 + number / 1000, 10.0 + number / 1000)
    Grants(1 << 30, 1 << 30, congestion_control=True, arriving=arriving).renew(flows, flows, 2)
    expected = arriving.share(7e-3 + beyond(wait), 1e-3, 2)
    assert {flow.grant for flow in flows} == {expected}
    assert (expected > arriving.share(7e-3, 1e-3, 2)) is (wait > 0)
