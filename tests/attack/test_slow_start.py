"""A job whose daemons find each other slowly starts late, and starts."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from dlcpd.contract.messages import Completed, Joined
from tests.daemon.kit import joins
from tests.daemon.test_two_hosts import SUBMIT, Rank, close, start, with_arena

DELAY: Final = 5.0  # seconds


@contextmanager
def delayed(endpoint: str) -> Iterator[str]:
    """An endpoint that leads to another one, and over which nothing passes for a while."""
    host, port = endpoint.removeprefix("tcp://").rsplit(":", 1)
    listener = socket.create_server(("127.0.0.1", 0))
    opens_at, ended, ends = time.monotonic() + DELAY, threading.Event(), list[socket.socket]()

    def carry(source: socket.socket, target: socket.socket) -> None:
        ended.wait(max(opens_at - time.monotonic(), 0.0))
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection((host, int(port)))
                ends.extend((near, far))
                for way in ((near, far), (far, near)):
                    threading.Thread(target=carry, args=way, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    ended.set()
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    for end in (listener, *ends):
        end.close()


@pytest.mark.check(7, f"a control link delayed {DELAY:g} s at the start: the job starts")
def test_a_slow_control_link(tmp_path: Path) -> None:
    with ExitStack() as stack:
        daemons = [stack.enter_context(start(tmp_path, number)) for number in (1, 2, 3)]
        clients = [daemon.client() for daemon in daemons]
        requests = joins("slow", [client.greet() for client in clients])
        slow = stack.enter_context(delayed(requests[0].peers[1].endpoint))
        peers = list(requests[0].peers)
        peers[1] = peers[1]._replace(endpoint=slow)
        requests[0] = replace(requests[0], peers=peers)
        for client, request in zip(clients, requests, strict=True):
            client.send(with_arena(request))
        ranks = list[Rank]()
        for client in reversed(clients):  # the third has nothing to do with the slow link
            client.expect(Joined)
            ranks.append(Rank(client))
            ranks[-1].submit(SUBMIT)
        assert all(isinstance(rank.result(), Completed) for rank in ranks)
        close(ranks)
