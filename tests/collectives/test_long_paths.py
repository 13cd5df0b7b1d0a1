"""Long paths in virtual time: round trips are not waited for one after another, a lost datagram of
control costs one at most, and segments are sent again only where they were lost."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from dlcp_lab.simulation.network import FRAMING, SimLink, SimNetwork
from dlcpd.core.wire.control import body_untrusted, unpack_transfers_untrusted
from dlcpd.core.wire.header import HEADER_SIZE, Header, Kind

SEGMENT = 1408  # bytes
RATE = 50e6 / 8 / (SEGMENT + HEADER_SIZE + FRAMING)  # datagrams per second: 50 Mb/s
SEGMENTS = 600  # of an operation: 144 ms of the link
LAST = 7  # number of the last result: of two shards with four chunks each
WARM = 3  # operations that measure the path


def network(round_trip: float) -> SimNetwork:
    link = SimLink(delay=round_trip / 2, rate=RATE, queue=400)
    return SimNetwork(2, link, segment_size=SEGMENT, chunk_segments=75, grant=32 << 20, recorded=[])


def took(net: SimNetwork, operation: int, **options: object) -> float:
    """Seconds of one all-reduce beyond those that its payload needs on the link."""
    begun = net.now
    parts = [np.ones(SEGMENTS * SEGMENT // 4, np.float32) for _ in range(2)]
    net.submit_all(operation, parts, **options)
    net.run(enough=partial(net.ended, operation))
    spent = net.now - begun
    net.run(until=0.01)
    return spent - SEGMENTS / RATE


def warm(round_trip: float) -> SimNetwork:
    net = network(round_trip)
    for operation in range(1, WARM + 1):
        took(net, operation)
    net.recorded = []
    return net


def said(net: SimNetwork, kind: Kind) -> int:
    return sum(c.data[1] == kind for c in net.recorded or ())


def losing(net: SimNetwork, lost: Callable[[int, Header, bytes], bool]) -> list[Header]:
    """Lose the first datagram that `lost` says of, and list it."""
    gone: list[Header] = []

    def tamper(source: int, _target: int, data: bytes) -> list[bytes]:
        header = Header.unpack_untrusted(data)
        if not gone and lost(source, header, data):
            gone.append(header)
            return []
        return [data]

    net.tamper = tamper
    return gone


def again(net: SimNetwork) -> int:
    """Datagrams with segments that were sent before."""
    flows = [flow for each in net.endpoints for flow in each.flows.values()]
    return sum(s.again for flow in flows for path in flow.paths.tx for s in path.spaces.values())


@pytest.mark.parametrize("round_trip", [0.02, 0.05])
def test_an_operation_waits_for_ready_the_last_result_and_its_acknowledgement_only(
    round_trip: float,
) -> None:
    """Half a round trip each; the memory is in place, so the peer must have the result."""
    net = warm(round_trip)
    times = [took(net, WARM + number) for number in range(1, 4)]
    assert max(times) < 1.5 * round_trip + 0.008


def test_no_timer_expires_before_an_answer_can_come() -> None:
    net = warm(0.25)
    spent = took(net, WARM + 1)
    assert spent < 2 * 0.25 + 0.1
    counts = said(net, Kind.END), said(net, Kind.NACK)
    assert counts == (0, 0)


def test_data_find_the_place_open_though_ready_was_lost() -> None:
    net = warm(0.05)
    gone = losing(net, lambda source, header, _: source == 0 and header.kind is Kind.READY)
    spent = took(net, WARM + 1)
    assert spent < 2.5 * 0.05 + 0.025
    counts = net.counted("unready"), again(net)
    assert gone and counts == (0, 0)


def test_on_a_short_path_without_loss_ready_is_sent_once() -> None:
    net = warm(0.001)
    took(net, WARM + 1)
    count = said(net, Kind.READY)
    assert count == 2


def test_a_lost_nack_costs_less_than_a_round_trip() -> None:
    net = warm(0.05)
    losing(net, lambda source, h, _: source == 0 and h.kind is Kind.DATA and h.segment == 40)
    one = took(net, WARM + 1)
    first: list[Header] = []

    def tamper(source: int, _target: int, data: bytes) -> list[bytes]:
        header = Header.unpack_untrusted(data)
        wanted = (Kind.DATA, Kind.NACK)[len(first)] if len(first) < 2 else None
        if header.kind is wanted and (header.kind is Kind.NACK or header.segment == 40):
            first.append(header)
            return []
        return [data]

    net.tamper = tamper
    spent = took(net, WARM + 2)
    assert spent < one + 0.015
    assert len(first) == 2
    count = again(net)
    assert count == 2


def test_a_lost_acknowledgement_of_a_path_that_loses_costs_no_round_trip() -> None:
    net = warm(0.05)
    losses = iter(range(10))

    def few(_source: int, _target: int, data: bytes) -> list[bytes]:
        lost = data[1] == Kind.DATA and Header.unpack_untrusted(data).segment % 20 == 7
        return [] if lost and next(losses, None) is not None else [data]

    net.tamper = few
    took(net, WARM + 1)
    net.tamper = None
    before = took(net, WARM + 2)

    def is_last(source: int, header: Header, data: bytes) -> bool:
        if source != 0 or header.kind is not Kind.COMPLETE:
            return False
        return LAST in unpack_transfers_untrusted(body_untrusted(data))

    gone = losing(net, is_last)
    spent = took(net, WARM + 3)
    assert spent < before + 0.015
    assert gone


@pytest.mark.parametrize("round_trip", [0.002, 0.02, 0.2])
def test_segments_are_sent_again_only_where_they_were_lost(round_trip: float) -> None:
    net, lost = network(round_trip), [0]
    rng = np.random.default_rng(2)

    def tamper(_source: int, _target: int, data: bytes) -> list[bytes]:
        if rng.random() >= 0.05:
            return [data]
        lost[0] += data[1] == Kind.DATA
        return []

    net.tamper = tamper
    for operation in range(1, 5):
        took(net, operation)
    count = again(net)
    assert count <= 1.1 * lost[0]
