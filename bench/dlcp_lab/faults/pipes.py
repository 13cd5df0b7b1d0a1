"""TCP connections of control processes through the relay, copied or held.

A connection is held while its two hosts are cut off from each other: TCP would retransmit and then
continue. The kernel's tables show which host opened it.
"""

import contextlib
import os
import selectors
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from dlcp_lab.faults.network import CONTROL_PORT, Network

READ: Final = 1 << 16  # bytes at a time
PATIENCE: Final = 1.0  # seconds in which a control process reads some hundred bytes; else it is cut
UNKNOWN: Final = -1  # host
_TABLE: Final = Path("/proc/net/tcp")
_READINGS: Final = 5  # of it, until a socket that exists is found


class Pipe:
    """One direction of a connection: bytes from `source` go to `target`."""

    def __init__(self, source: socket.socket, target: socket.socket, pair: frozenset[int]) -> None:
        self.source, self.target, self.pair = source, target, pair

    def copy(self) -> bool:
        """Copy the available bytes; False at the end of either side."""
        try:
            data = self.source.recv(READ, socket.MSG_DONTWAIT)
            self.target.sendall(data)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return bool(data)


class Pipes:
    """All connections. Only the relay's thread may call methods that take no lock."""

    def __init__(
        self,
        network: Network,
        pids: Callable[[], Sequence[int]],
        selector: selectors.BaseSelector,
    ) -> None:
        self._network, self._pids, self._selector = network, pids, selector
        self._lock = threading.Lock()
        self._cut: frozenset[frozenset[int]] = frozenset()  # pairs of hosts
        self._held = 0  # times that a connection was found cut
        self._still: set[Pipe] = set()
        self._twins: dict[Pipe, Pipe] = {}
        self._listeners = [_listen(network.relay(host)) for host in range(network.hosts)]
        for host, listener in enumerate(self._listeners):
            selector.register(listener, selectors.EVENT_READ, partial(self._accept, host))

    def cut(self, pairs: Iterable[frozenset[int]]) -> None:
        """Hold the connections between the hosts of each of these pairs, and no others."""
        with self._lock:
            self._cut = frozenset(pairs)

    @property
    def held(self) -> int:
        """Number of times that data arrived on a connection that was cut."""
        return self._held

    def go_on(self) -> None:
        """Continue connections that are no longer cut. The relay calls it in every iteration."""
        for pipe in [pipe for pipe in self._still if pipe.pair not in self._cut]:
            self._still.discard(pipe)
            self._watch(pipe)

    def close(self) -> None:
        """Close all connections and listeners."""
        while self._twins:
            self._end(next(iter(self._twins)))
        for listener in self._listeners:
            listener.close()

    def _accept(self, target: int) -> None:
        near, _ = self._listeners[target].accept()
        try:
            far = socket.create_connection((self._network.address(target), CONTROL_PORT), PATIENCE)
        except OSError:  # no listener: the daemon has ended
            near.close()
            return
        near.settimeout(PATIENCE)
        pair = frozenset((_owner(near.getpeername(), self._pids()), target))
        out, back = Pipe(near, far, pair), Pipe(far, near, pair)
        self._twins |= {out: back, back: out}
        self._watch(out)
        self._watch(back)

    def _watch(self, pipe: Pipe) -> None:
        self._selector.register(pipe.source, selectors.EVENT_READ, partial(self._turn, pipe))

    def _turn(self, pipe: Pipe) -> None:
        if pipe not in self._twins:  # the other direction ended in this iteration
            return
        if pipe.pair in self._cut:
            self._held += 1
            self._selector.unregister(pipe.source)
            self._still.add(pipe)
        elif not pipe.copy():
            self._end(pipe)

    def _end(self, pipe: Pipe) -> None:
        for one in (pipe, self._twins[pipe]):
            self._still.discard(one)
            self._twins.pop(one, None)
            with contextlib.suppress(KeyError):
                self._selector.unregister(one.source)
        pipe.source.close()
        pipe.target.close()


def _listen(address: str) -> socket.socket:
    return socket.create_server((address, CONTROL_PORT))


def _owner(address: tuple[str, int], pids: Sequence[int]) -> int:
    """The host whose control process has the socket with this local address, or UNKNOWN."""
    wanted = f"socket:[{_inode(*address)}]"
    for host, pid in enumerate(pids):
        with contextlib.suppress(OSError):  # the process has ended
            if any(_names(entry) == wanted for entry in Path(f"/proc/{pid}/fd").iterdir()):
                return host
    return UNKNOWN


def _names(descriptor: Path) -> str:
    """The target of a descriptor; "" if it is closed by now."""
    try:
        return os.readlink(descriptor)
    except OSError:
        return ""


def _inode(host: str, port: int) -> str:
    """Inode of the TCP socket with this local address; "" if there is none.

    The kernel gives the table in parts, and may skip a row where others come and go.
    """
    packed = int.from_bytes(socket.inet_aton(host), "little")
    local = f"{packed:08X}:{port:04X}"
    for _ in range(_READINGS):
        for line in _TABLE.read_text().splitlines()[1:]:
            columns = line.split()
            if columns[1] == local:
                return columns[9]
    return ""
