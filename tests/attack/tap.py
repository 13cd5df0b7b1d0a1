"""Real engines with somebody between them, who forwards all that they say and can say more."""

import socket
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from dlcpd.core.wire.header import HEADER_SIZE
from dlcpd.io import commands
from dlcpd.io.config import EngineConfig
from dlcpd.io.udp import mmsg
from tests.io.engines import Job, Rank

KEPT: Final = 64  # newest datagrams of each kind and direction
LONGEST: Final = 9216  # bytes; more than any datagram of these tests has
BURST: Final = 64  # datagrams of one sendmmsg
PER_LOOK: Final = 256  # datagrams forwarded of one direction before the others get their turn
RECEIVE: Final = 8 << 20  # bytes of receive buffer, so that forwarding itself loses nothing
Direction = tuple[int, int]  # from rank, to rank


class TappedJob(Job):
    """Its ranks reach each other through sockets of this process."""

    def __init__(self, configs: Sequence[EngineConfig], *, keyed: bool = False) -> None:
        self.session = 1
        size = len(configs)
        self.taps = {
            (source, target): _receiver()
            for source in range(size)
            for target in range(size)
            if source != target
        }
        self.heard: dict[Direction, dict[int, deque[bytes]]] = {}
        self.forget()
        super().__init__(size, lambda rank: configs[rank], keyed=keyed)

    def towards(self, rank: int, peer: int) -> list[commands.UdpAddress]:
        return [commands.UdpAddress(*self.taps[rank, peer].getsockname())]

    def forget(self) -> None:
        """What was heard was of a session that is over."""
        self.heard = {each: defaultdict(lambda: deque(maxlen=KEPT)) for each in self.taps}

    def forward(self) -> int:
        """Pass on what waits, and keep some of it; how many datagrams."""
        passed = 0
        for (source, target), sock in self.taps.items():
            address, heard = tuple(self.endpoints[target][0]), self.heard[source, target]
            for _ in range(PER_LOOK):
                try:
                    data = sock.recv(1 << 16)
                except BlockingIOError:
                    break
                sock.sendto(data, address)
                passed += 1
                if len(data) >= HEADER_SIZE:
                    heard[data[1]].append(data)
        return passed

    def reopen(self) -> None:
        """Another session on the same engines, with tokens of its own."""
        for rank in self.ranks:
            rank.lane.close()
            rank.engine.close_session(self.session)
        self.session += 1
        self.forget()
        self.ranks: list[Rank] = [self.open(n, self.session) for n in range(len(self.engines))]

    def close(self) -> None:
        super().close()
        for sock in self.taps.values():
            sock.close()


class Burst:
    """sendmmsg from one socket, to several addresses."""

    def __init__(self, endpoints: Sequence[tuple[str, int]]) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._names = [mmsg.pack_address(socket.AF_INET, *each) for each in endpoints]
        self._data = np.zeros((BURST, LONGEST), np.uint8)
        self._iov = np.zeros((BURST, 2), np.uint64)
        self._messages = np.zeros(BURST, mmsg.MSGHDR)
        number = np.arange(BURST, dtype=np.uint64)
        self._iov[:, 0] = mmsg.address(self._data) + number * LONGEST
        self._messages["iov"] = mmsg.address(self._iov) + number * 16
        self._messages["iov_count"] = 1

    def send(self, datagrams: Sequence[tuple[int, bytes]]) -> None:
        """(rank, datagram), at most BURST of them."""
        for row, (rank, data) in enumerate(datagrams):
            self._data[row, : len(data)] = np.frombuffer(data, np.uint8)
            self._iov[row, 1] = len(data)
            self._messages[row]["name"] = mmsg.address(self._names[rank])
            self._messages[row]["name_size"] = len(self._names[rank])
        done = 0
        while done < len(datagrams):
            done += mmsg.send_many(
                self.socket.fileno(), mmsg.address(self._messages), done, len(datagrams) - done
            )

    def close(self) -> None:
        self.socket.close()


def queued(ports: Sequence[int]) -> tuple[int, int]:
    """(most bytes that wait at one of these UDP ports of this host, datagrams that the kernel ever
    dropped at them all)."""
    waiting, dropped = 0, 0
    for line in Path("/proc/net/udp").read_text().splitlines()[1:]:
        columns = line.split()
        if int(columns[1].rpartition(":")[2], 16) in ports:
            waiting = max(waiting, int(columns[4].rpartition(":")[2], 16))
            dropped += int(columns[-1])
    return waiting, dropped


def anonymous_memory(pid: int) -> int:
    """Resident bytes of a process that are no file's and no shared memory's."""
    status = Path(f"/proc/{pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) << 10


def grown(before: Counter[str], after: Counter[str]) -> Counter[str]:
    """What was counted in between."""
    return Counter({name: after[name] - before[name] for name in after})


def _receiver() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE)
    sock.bind(("127.0.0.1", 0))
    return sock
