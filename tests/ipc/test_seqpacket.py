"""SEQPACKET packets, and descriptors beside them."""

import os
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcpd.contract.errors import BadMessage
from dlcpd.contract.frames import decode_untrusted, encode
from dlcpd.contract.inquiries import StatusRequest
from dlcpd.contract.messages import MAX_FRAME, Released
from dlcpd.ipc.seqpacket import receive, receive_now, send_now

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with a, b:
        yield a, b


def test_packets_keep_their_edges(pair: Pair) -> None:
    assert receive_now(pair[1]) is None
    assert send_now(pair[0], b"one")
    assert send_now(pair[0], b"two")
    assert receive_now(pair[1]) == b"one"
    assert receive_now(pair[1]) == b"two"
    assert receive_now(pair[1]) is None
    pair[0].close()
    assert receive_now(pair[1]) == b""


def test_a_long_packet_shows_by_its_length(pair: Pair) -> None:
    send_now(pair[0], b"x" * 100)
    assert receive_now(pair[1], 10) == b"x" * 11


def test_a_full_buffer_is_no_error(pair: Pair) -> None:
    sent = 0
    while send_now(pair[0], b"x" * 1000):
        sent += 1
        assert sent < 10_000
    assert receive_now(pair[1]) == b"x" * 1000
    assert send_now(pair[0], b"y")


def test_a_reset_reads_as_the_end(pair: Pair) -> None:
    send_now(pair[1], b"unread")
    pair[0].close()
    assert receive_now(pair[1]) == b""
    with pytest.raises(BrokenPipeError):
        send_now(pair[1], b"x")


def test_descriptors_travel_and_do_not_leak_into_children(pair: Pair) -> None:
    read, write = os.pipe()
    send_now(pair[0], b"take these", [read, write])
    data, [got_read, got_write] = receive(pair[1])
    assert data == b"take these"
    os.write(got_write, b"!")
    assert os.read(read, 1) == b"!"
    assert not os.get_inheritable(got_read)
    for descriptor in (read, write, got_read, got_write):
        os.close(descriptor)


def test_receiving_descriptors_where_there_are_none(pair: Pair) -> None:
    pair[1].setblocking(False)
    with pytest.raises(BlockingIOError):
        receive(pair[1])
    send_now(pair[0], b"bare")
    assert receive(pair[1]) == (b"bare", [])
    pair[0].close()
    assert receive(pair[1]) == (b"", [])


def test_the_largest_frame_fits_a_default_socket(pair: Pair) -> None:
    assert send_now(pair[0], b"x" * MAX_FRAME)
    assert receive_now(pair[1]) == b"x" * MAX_FRAME


def test_messages_come_back_as_sent() -> None:
    assert decode_untrusted(encode(Released(7))) == Released(7)
    assert decode_untrusted(encode(StatusRequest(0))) == StatusRequest(0)


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", b"\x92\x04", b"\xa2\xff\xff", b"\x92" + b"\x91" * 1015 + b"\xc0\x80",
     b"\xc0" * (MAX_FRAME + 1), b"\x91" * MAX_FRAME],
    ids=["empty", "reserved", "short", "utf8", "deep", "long", "deeper"],
)  # fmt: skip
def test_rubbish_is_a_bad_message(data: bytes) -> None:
    with pytest.raises(BadMessage):
        decode_untrusted(data)


@given(st.binary(max_size=100))
@settings(max_examples=500)
def test_any_bytes_raise_only_bad_message(data: bytes) -> None:
    with pytest.raises(BadMessage):
        decode_untrusted(data)
