"""The engine's end of a lane."""

import socket

from dlcpd.contract.frames import decode_untrusted
from dlcpd.contract.messages import Failed
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
        last = decode_untrusted(mine.recv(1 << 16))
        assert isinstance(last, Failed) and last.text == "told to"
        assert mine.recv(1) == b""


def test_to_close_it_does_not_take_as_long_as_to_free_the_arena() -> None:
    """That is for a thread, and for later where somebody still uses the memory."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    lane = Lane(1, create_arena(1 << 20), 1 << 20, theirs.detach())
    used = lane.memory[:10]
    with mine:
        lane.close()
    assert not lane.memory.size
    used[:] = 1
