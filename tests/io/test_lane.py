"""The engine's end of a lane."""

import socket

import msgpack

from dlcpd.contract.messages import Failed, from_frame_untrusted
from dlcpd.io.clients.lane import Lane
from dlcpd.io.clients.memory import create_arena


def test_the_last_words_arrive_though_the_client_has_just_said_something() -> None:
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    lane = Lane(1, create_arena(4096), 4096, theirs.detach())
    with mine:
        mine.settimeout(5.0)
        mine.send(b"a submission that comes too late")
        lane.send(Failed(0, "session_closed", "told to"))
        lane.close()
        last = from_frame_untrusted(msgpack.unpackb(mine.recv(1 << 16)))
        assert isinstance(last, Failed) and last.text == "told to"
        assert mine.recv(1) == b""
