"""The sending half of a flow: what it waits for when it may not send."""

import numpy as np

from dlcpd.core.endpoint import Endpoint, PeerSpec
from dlcpd.core.paths.pacing import Pacer
from dlcpd.core.send_scheduler import SendScheduler
from dlcpd.core.timers import Timer
from dlcpd.core.transfer.packetizer import all_of_tag, natural_order
from dlcpd.core.transfer.sender import TransferSender
from dlcpd.core.wire.header import HEADER_SIZE, Key

NOW, SEGMENT, SEGMENTS = 1000.0, 1024, 16


def test_a_flow_without_credit_sets_no_timer_for_its_pace() -> None:
    """Such a timer woke the engine every half millisecond, and nothing could be sent."""
    endpoint = Endpoint(SEGMENT, 1 << 20, SendScheduler(Pacer(0)))
    session = endpoint.open_session(1, 0, [PeerSpec(1, "there", 7, 8, 1)], peer_timeout=1.0)
    flow = session.flows[1]
    flow.window = 4 * (HEADER_SIZE + SEGMENT)
    payload, tags = np.zeros(SEGMENTS * SEGMENT, np.uint8), all_of_tag(SEGMENTS, 15)
    key, order = Key(0, 1, 0), natural_order(SEGMENTS)
    flow.send(TransferSender(key, payload, 0, SEGMENT, tags, order))
    batch = flow.transmit(NOW, 1 << 20)
    assert batch is not None and len(batch.segments) == 4
    assert flow.transmit(NOW, 1 << 20) is None
    assert flow.outgoing.held and not endpoint.timers.pending((flow, Timer.PACE, None))
    assert endpoint.timers.pending((flow, Timer.CREDIT, None)), "a lost CREDIT is asked for"
