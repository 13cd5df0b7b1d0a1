"""The receive buffers of an engine are shared among its senders."""

import pytest

from dlcpd.core.grants import Grants
from dlcpd.core.paths.incast import FEWEST, INITIAL, ArrivalRate
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
    [flow] = session(2).flows.values()
    Grants(1 << 30, 1 << 30, congestion_control=True, arriving=ArrivalRate()).update(
        flow, 8, senders
    )
    assert flow.grant == max(INITIAL // max(senders, 1), FEWEST)
    assert flow.opening == INITIAL // 8, "as if all began at once"
