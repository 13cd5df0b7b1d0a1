"""What the kernel lets into the queue of a data socket."""

import socket
from collections.abc import Iterator

import pytest

from dlcpd.core.wire.header import VERSION, Header, Kind
from dlcpd.io.udp.mmsg import UDP_GRO, UDP_SEGMENT
from dlcpd.io.udp.stranger_filter import MAX_PREFIXES, attach, dropped, prefix, program

OURS = 0xA1B2_0000_0000_0007  # a token; its bytes differ, so that their order matters


@pytest.fixture(params=["127.0.0.1", "::1"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    sink, source = (socket.socket(family, socket.SOCK_DGRAM) for _ in range(2))
    with sink, source:
        sink.bind((request.param, 0))
        sink.setblocking(False)
        source.connect(sink.getsockname())
        yield sink, source


def arrives(ends: tuple[socket.socket, socket.socket], data: bytes) -> bool:
    """On loopback a datagram is queued, or not, before the call that sends it returns."""
    ends[1].send(data)
    try:
        return ends[0].recv(1 << 16) == data
    except BlockingIOError:
        return False


@pytest.mark.parametrize("kind", Kind)
def test_what_may_be_of_a_peer_arrives(
    ends: tuple[socket.socket, socket.socket], kind: Kind
) -> None:
    attach(ends[0], {5, prefix(OURS), 9})
    for token in (OURS, OURS ^ 1 << 40):  # the rest of it is for the engine to look at
        for size in (32, 40, 9000):
            assert arrives(ends, Header(kind, token).pack().ljust(size, b"x"))
    assert dropped(ends[0]) == 0


def test_what_cannot_be_does_not_and_is_counted(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    attach(ends[0], {prefix(OURS)})
    good = Header(Kind.DATA, OURS).pack()
    bad = [
        b"",
        b"x",
        good[:15],
        bytes(9000),
        bytes([VERSION ^ 1]) + good[1:],
        *[Header(Kind.DATA, OURS ^ 1 << bit).pack() for bit in range(48, 64)],
        Header(Kind.DATA, int.from_bytes(OURS.to_bytes(8, "big"), "little")).pack(),
    ]
    assert not any(arrives(ends, data) for data in bad)
    assert dropped(ends[0]) == len(bad)
    assert arrives(ends, good)


def test_a_burst_of_strangers_is_refused_whole(ends: tuple[socket.socket, socket.socket]) -> None:
    attach(ends[0], {prefix(OURS)})
    ends[0].setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
    ends[1].setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 1000)
    assert not arrives(ends, bytes(50_000))
    assert arrives(ends, Header(Kind.DATA, OURS).pack().ljust(50_000))


def test_the_filter_is_replaced(ends: tuple[socket.socket, socket.socket]) -> None:
    good = Header(Kind.PING, OURS).pack()
    wanted = {0: False, 1: True, MAX_PREFIXES: True, MAX_PREFIXES + 1: True}
    for count, arrived in wanted.items():
        attach(ends[0], {prefix(OURS) + n for n in range(count)})
        assert arrives(ends, good) == arrived
        assert not arrives(ends, b"\0" + good[1:])
        last = Header(Kind.PING, OURS + (max(count, 1) - 1 << 48)).pack()
        assert arrives(ends, last) == arrived


def test_a_program_is_short() -> None:
    """Of the 4,096 instructions that the kernel takes; each jump spans at most 255."""
    assert len(program(range(MAX_PREFIXES))) // 8 == MAX_PREFIXES + 5
