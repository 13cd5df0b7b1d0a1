"""Somebody on the path between two controls: passes on all that they say, and keeps it."""

import contextlib
import selectors
import socket
import threading
from typing import Self

from dlcpd.contract.messages import Welcome
from dlcpd.daemon.peers.peers import PeerAddress

LOOK = 0.1  # seconds between looks whether it is over


class Relay:
    """A port in front of a control. `said` is what came to it, by connection; `answered` likewise
    what came back."""

    def __init__(self, behind: Welcome) -> None:
        self._target = PeerAddress(behind.endpoint, behind.public_key).target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self.said: list[bytearray] = []
        self.answered: list[bytearray] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def everything(self) -> bytes:
        return b"".join([*self.said, *self.answered])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
            stack.enter_context(self._listener)
            selector.register(self._listener, selectors.EVENT_READ)
            while not self._over.is_set():
                for key, _ in selector.select(LOOK):
                    if key.fileobj is self._listener:
                        self._accept(selector, stack)
                    else:
                        self._pass_on(selector, key)

    def _accept(self, selector: selectors.BaseSelector, stack: contextlib.ExitStack) -> None:
        near, _ = self._listener.accept()
        far = socket.create_connection(self._target)
        for sock, other, kept in ((near, far, self.said), (far, near, self.answered)):
            stack.enter_context(sock)
            kept.append(bytearray())
            selector.register(sock, selectors.EVENT_READ, (other, kept[-1]))

    def _pass_on(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        sock, (other, kept) = key.fileobj, key.data
        assert isinstance(sock, socket.socket)
        try:
            data = sock.recv(1 << 16)
            other.sendall(data)
        except OSError:
            data = b""
        kept += data
        if not data:
            selector.unregister(sock)
            with contextlib.suppress(OSError):
                other.shutdown(socket.SHUT_WR)
