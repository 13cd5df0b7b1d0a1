"""Control datagrams that wait."""

import pytest

from dlcp_lab.simulation.network import SimNetwork, as_received
from dlcpd.core import inbox as inbox_module
from dlcpd.core.demultiplexer import MOST_STRAYS
from dlcpd.core.endpoint import Endpoint
from dlcpd.core.inbox import Inbox
from dlcpd.core.paths.newest import WRAP
from dlcpd.core.wire import bundle, control
from dlcpd.core.wire.header import Header, Kind

TOKEN = 0xABCD_0000_0000_0001
GONE = 7  # an operation that nobody knows


def header(kind: Kind, operation: int = 1, sent_at: int = 0, path: int = 0) -> Header:
    return Header(kind, TOKEN, operation, path=path, sent_at=sent_at)


def taken(inbox: Inbox) -> list[bytes]:
    return [inbox.take().data for _ in range(len(inbox))]


def test_first_come_first_served() -> None:
    inbox = Inbox()
    for number in range(3):
        inbox.put(header(Kind.CREDIT), b"%d" % number, 0.0)
    assert taken(inbox) == [b"0", b"1", b"2"]
    with pytest.raises(KeyError):
        inbox.take()


@pytest.mark.parametrize("kind", [Kind.READY, Kind.READY_ACK, Kind.END])
def test_a_repetition_takes_the_place_of_what_it_repeats(kind: Kind) -> None:
    inbox = Inbox()
    inbox.put(header(kind, sent_at=10), b"first", 0.0)
    inbox.put(header(kind, 2, sent_at=10), b"other operation", 0.0)
    inbox.put(header(kind, sent_at=10, path=1), b"other path", 0.0)
    inbox.put(header(kind, sent_at=11), b"again", 0.0)
    assert taken(inbox) == [b"again", b"other operation", b"other path"]
    assert inbox.repeated == 1


@pytest.mark.parametrize("stamps", [(10, 10), (10, 9), (1, WRAP - 1)])
def test_what_was_sent_earlier_takes_no_place(stamps: tuple[int, int]) -> None:
    """Else a copy of an old one would keep the new ones from being heard."""
    inbox = Inbox()
    for number, stamp in enumerate(stamps):
        inbox.put(header(Kind.END, sent_at=stamp), b"%d" % number, 0.0)
    assert taken(inbox) == [b"0"]


@pytest.mark.parametrize("kind", [Kind.CREDIT, Kind.COMPLETE, Kind.NACK, Kind.FINAL, Kind.ACK])
def test_what_adds_to_what_came_before_is_kept_beside_it(kind: Kind) -> None:
    inbox = Inbox()
    inbox.put(header(kind), b"1", 0.0)
    inbox.put(header(kind), b"2", 0.0)
    assert taken(inbox) == [b"1", b"2"]


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "MOST_WAITING", 2)
    inbox = Inbox()
    for operation in range(1, 5):
        inbox.put(header(Kind.READY, operation), b"", 0.0)
    assert (len(inbox), inbox.lost) == (2, 2)


# --- at an endpoint --------------------------------------------------------------------------


def flooded(count: int, kind: Kind = Kind.READY_ACK) -> tuple[SimNetwork, Endpoint]:
    """An endpoint to which a peer has said so many different things since its last wake-up."""
    net = SimNetwork(2)
    said = [
        control.datagram(Header(kind, net.token(0, 1), GONE + n, sent_at=1 + n), b"")
        for n in range(count)
    ]
    endpoint = net.endpoints[0]
    for data in said:
        endpoint.receive(as_received([data], 0, net), net.now)
    return net, endpoint


def test_what_is_too_much_for_one_wake_up_waits_for_the_next() -> None:
    net, endpoint = flooded(3 * MOST_STRAYS)
    assert len(endpoint.inbox) == 2 * MOST_STRAYS
    assert (endpoint.next_timeout() or 0.0) <= net.now
    endpoint.handle_timeout(net.now)
    assert len(endpoint.inbox) == MOST_STRAYS
    endpoint.handle_timeout(net.now)
    assert not endpoint.inbox
    assert endpoint.next_timeout() is None


def test_pings_do_not_wait() -> None:
    """A peer that gets no answer within a second takes this engine for dead."""
    net, endpoint = flooded(2 * MOST_STRAYS)
    waiting = len(endpoint.inbox)
    ping = control.datagram(Header(Kind.PING, net.token(0, 1), sent_at=1 << 20), b"")
    endpoint.receive(as_received([ping], 0, net), net.now)
    assert len(endpoint.inbox) == waiting
    answers = [Header.unpack_untrusted(each.data).kind for each in endpoint.departures(net.now)[0]]
    assert Kind.CREDIT in answers


def test_parts_of_bundles_wait_as_if_each_had_come_alone() -> None:
    """Small data, too: a bundle has up to 64 parts, and a receive call brings hundreds of them."""
    net, endpoint = flooded(0)
    data = Header(Kind.DATA, net.token(0, 1), 1, packet_number=1, tag=18).pack() + bytes(8)
    said = Header(Kind.READY_ACK, net.token(0, 1), GONE).pack()
    sent = bundle.pack(net.token(0, 1), 0, 18, [said, *[data] * 31])
    count = 1 + MOST_STRAYS // 32
    endpoint.receive(as_received([sent] * count, 0, net), net.now)
    assert endpoint.effort["data_in"] == MOST_STRAYS // 32 * 31
    assert len(endpoint.inbox) == 32
    endpoint.handle_timeout(net.now)
    assert endpoint.effort["data_in"] == count * 31
    assert not endpoint.inbox


def test_strangers_do_not_wait_either() -> None:
    net, endpoint = flooded(2 * MOST_STRAYS)
    waiting = len(endpoint.inbox)
    data = control.datagram(Header(Kind.READY_ACK, 99, 1), b"")
    endpoint.receive(as_received([data], 0, net), net.now)
    assert len(endpoint.inbox) == waiting
    assert endpoint.counters["token"] == 1


def test_what_waits_for_a_session_that_ends_is_refused() -> None:
    net, endpoint = flooded(2 * MOST_STRAYS)
    endpoint.close_session(net.sessions[0].number)
    endpoint.handle_timeout(net.now)
    assert not endpoint.inbox
    assert endpoint.counters["token"] == MOST_STRAYS
