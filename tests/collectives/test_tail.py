"""When what is missing counts as lost: at once where packet numbers show it, else after a while."""

from functools import partial

import numpy as np

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcpd.core.paths.rtt import MIN_RTO, MOST_REORDERING
from dlcpd.core.session.outgoing import END_SOON
from dlcpd.core.transfer.sender import ENDING_RUN
from dlcpd.core.wire.header import Flag, Header, Kind

LINK = SimLink(delay=50e-6)
ELEMENTS = 128 * 32  # 128 segments of 128 bytes: 64 to each of two ranks


def network(link: SimLink = LINK) -> SimNetwork:
    """One that knows its round trip."""
    net = SimNetwork(2, link, chunk_segments=128, recorded=[])
    for operation in range(1, 5):
        reduce(net, operation)
    net.recorded = []
    return net


def reduce(net: SimNetwork, operation: int) -> float:
    """An operation; the seconds that it took."""
    begun = net.now
    net.submit_all(operation, [np.ones(ELEMENTS, np.float32) for _ in range(2)])
    net.run(enough=partial(net.ended, operation))
    assert net.ended(operation)
    return net.now - begun


def asked_again(net: SimNetwork) -> int:
    assert net.recorded is not None
    return sum(each.data[1] == Kind.NACK for each in net.recorded)


def test_a_sender_that_pauses_within_its_last_datagrams_is_waited_for() -> None:
    """As one does whose CPU was taken away; nothing is lost."""
    net, seen = network(), [0, 0]

    def tamper(source: int, target: int, data: bytes) -> list[bytes]:
        header, late = Header.unpack_untrusted(data), False
        if header.kind is Kind.DATA and header.flags & Flag.ENDING:
            late = seen[source] % ENDING_RUN >= 10
            seen[source] += 1
        net.detour[0] = MIN_RTO / 2 if late else 0.0
        return [data]

    net.tamper = tamper
    assert reduce(net, 5) > MIN_RTO / 2, "the last datagrams were late"
    assert asked_again(net) == 0


def test_a_tail_is_not_lost_before_its_sender_would_ask() -> None:
    """On a slow link other data come between the last datagrams of a pass: their pause is short
    beside a round trip, and longer than any reordering. Nothing is lost."""
    net, pause = network(SimLink(delay=20e-3)), 2 * MOST_REORDERING

    def tamper(source: int, target: int, data: bytes) -> list[bytes]:
        header = Header.unpack_untrusted(data)
        late = header.kind is Kind.DATA and header.segment >= 62  # of 64
        net.detour[0] = pause if late else 0.0
        return [data]

    net.tamper = tamper
    assert reduce(net, 5) > 2 * (20e-3 + pause), "the last datagrams were late"
    assert asked_again(net) == 0


def test_a_hole_in_the_packet_numbers_is_a_loss_at_once() -> None:
    net, lost = network(), list[bytes]()

    def tamper(source: int, target: int, data: bytes) -> list[bytes]:
        header = Header.unpack_untrusted(data)
        if header.kind is Kind.DATA and header.segment == 40 and not lost:
            lost.append(data)
            return []
        return [data]

    net.tamper = tamper
    assert reduce(net, 5) < MIN_RTO, "the retransmission did not wait for a timeout"
    assert lost and asked_again(net) == 1


def test_the_last_datagrams_that_are_lost_are_asked_for() -> None:
    """No later one shows it."""
    net, lost = network(), [0, 0]

    def tamper(source: int, target: int, data: bytes) -> list[bytes]:
        header = Header.unpack_untrusted(data)
        if header.kind is Kind.DATA and header.segment >= 60 and lost[source] < 4:
            lost[source] += 1
            return []
        return [data]

    net.tamper = tamper
    assert MIN_RTO <= reduce(net, 5) < 4 * MIN_RTO
    assert sum(lost) == 8


def test_on_a_path_that_loses_end_shows_the_lost_tail() -> None:
    """It follows the pass, so nothing waits for a timeout."""
    net, lost = network(), [0, 0]

    def tamper(source: int, target: int, data: bytes) -> list[bytes]:
        header = Header.unpack_untrusted(data)
        tail = header.kind is Kind.DATA and header.segment >= 60
        early = header.kind is Kind.DATA and header.operation == 5 and header.segment < 8
        if (tail or early) and not header.round:
            lost[source] += 1
            return []
        return [data]

    net.tamper = tamper
    reduce(net, 5)  # the peers learn that the path loses
    assert reduce(net, 6) < MIN_RTO
    assert min(lost) > 8


def test_a_pass_over_unequal_paths_ends_with_the_slowest() -> None:
    """What a quick path lacks is asked for when the slow one has delivered: not sooner, for its
    data are on the way, and not after a timer."""
    slow, lost, asked = 10e-3, list[int](), list[float]()
    net = SimNetwork(2, LINK, chunk_segments=128, paths=2, detour={1: slow})
    for operation in range(1, 8):
        reduce(net, operation)
    for endpoint in net.endpoints:
        for flow in next(iter(endpoint.sessions.values())).flows.values():
            flow.paths.tx[0].space(0).lost = 100
            assert flow.paths.is_lossy
    begun = net.now

    def tamper(source: int, target: int, data: bytes) -> list[bytes]:
        header = Header.unpack_untrusted(data)
        if header.kind is Kind.DATA and header.path == 0 and not header.round and len(lost) < 2:
            lost.append(header.segment)
            return []
        if header.kind is Kind.NACK:
            asked.append(net.now - begun)
        return [data]

    net.tamper = tamper
    reduce(net, 8)
    assert slow < asked[0] < slow + 1e-3
    stats = [net.done(rank)[8].stats for rank in range(2)]
    assert sum(each.retransmitted for each in stats) == len(lost) == 2


def test_on_a_path_that_loses_end_waits_for_data_that_the_socket_did_not_take() -> None:
    """Else END would call them lost."""
    net, kinds = network(), list[Kind]()
    flow = next(iter(net.endpoints[0].sessions.values())).flows[1]
    flow.paths.tx[0].space(0).lost = 1000
    assert flow.paths.is_lossy
    flow.paths.full = {0}

    def tamper(source: int, target: int, data: bytes) -> list[bytes]:
        if source == 0:
            kinds.append(Header.unpack_untrusted(data).kind)
        return [data]

    net.tamper = tamper
    net.submit_all(5, [np.ones(ELEMENTS, np.float32) for _ in range(2)])
    net.run(until=net.now + 3 * END_SOON)
    assert Kind.END not in kinds
