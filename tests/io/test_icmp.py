"""What ICMP says about datagrams that a socket sent."""

import contextlib
import select
import socket

from dlcpd.io.discovery.icmp import MAX_ERRORS, RouteProbe


def test_so_many_errors_are_read_at_a_time_and_the_others_stay() -> None:
    """Of datagrams to a port where nobody listens."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed,
    ):
        closed.bind(("127.0.0.1", 0))
        nobody = closed.getsockname()
        closed.close()
        probe, sent = RouteProbe(sock), 0
        while sent < 2 * MAX_ERRORS:
            with contextlib.suppress(ConnectionRefusedError):  # of an earlier one: not sent
                sock.sendto(b"x", nobody)
                sent += 1
        poll = select.poll()
        poll.register(sock, 0)
        assert poll.poll(5000)
        assert [len(list(probe.answers())) for _ in range(3)] == [MAX_ERRORS, MAX_ERRORS, 0]
