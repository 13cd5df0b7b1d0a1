import socket

import pytest

from dlcpd.daemon.peers.stream import ByteStream, set_options


def test_tcp_finds_out_that_the_other_end_is_gone_and_nothing_waits_for_more() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sock = socket.create_connection(server.getsockname())
    with sock:
        set_options(sock)
        assert not sock.getblocking()
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        for option, most in (
            (socket.TCP_KEEPIDLE, 10),
            (socket.TCP_KEEPINTVL, 10),
            (socket.TCP_KEEPCNT, 3),
            (socket.TCP_USER_TIMEOUT, 20_000),
        ):
            assert 0 < sock.getsockopt(socket.IPPROTO_TCP, option) <= most
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_the_end_of_the_other_side_is_an_error() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        ours.setblocking(False)
        stream = ByteStream(ours)
        assert stream.receive() is None
        theirs.close()
        with pytest.raises(EOFError):
            stream.receive()
