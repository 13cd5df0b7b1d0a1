"""Sends probes to a `doctor --listen` and collects answers, over many sockets at once."""

import errno
import select
import socket
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from dlcpd.doctor import tos
from dlcpd.doctor.datagrams import LEAST, Probe, ProbeAnswer, answer_untrusted
from dlcpd.io.discovery.icmp import RouteProbe
from dlcpd.io.udp import mmsg
from dlcpd.ipc import kernel_errors

TRIES: Final = 3  # of a probe without an answer: at 5 % loss, one false result in 8,000
PENDING: Final = 64  # ICMP errors handled in a row
MOST_REPLIES: Final = 4096  # at once: more than were asked for
LONGEST: Final = 1 << 16

Address = tuple[str, int]


class Wish(NamedTuple):
    """The parameters of a probe."""

    tos: int = 0
    size: int = LEAST
    reply_size: int = 0


class Reply(NamedTuple):
    """An answer, and how it arrived."""

    answer: ProbeAnswer
    tos: int  # of the answer, as it arrived here; it was sent with that of the probe
    sent_at: float  # monotonic, seconds; of the last try
    arrived_at: float


class _Asked(NamedTuple):
    position: int
    sent_at: float


class Prober:
    """A socket with one source port, connected to one port of the peer. Raises: OSError."""

    def __init__(self, local: str, remote: Address, token: bytes) -> None:
        family = socket.AF_INET6 if ":" in local else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            self.sock.bind((local, 0))
            self.sock.connect(remote)  # for ICMP errors, and against foreign datagrams
            mmsg.never_fragment(self.sock)
            tos.receive(self.sock)
            self._route = RouteProbe(self.sock)
        except OSError:
            self.sock.close()
            raise
        self.remote, self._token = remote, token
        self._routers: deque[str] = deque(maxlen=PENDING)
        self._next = 0
        self._waiting: dict[int, _Asked] = {}  # by serial
        self.refused = False  # ICMP of the peer or a router: unreachable

    def ask(self, position: int, wish: Wish) -> bool:
        """Send a probe; `replies` returns its answer with `position`. False: it is too long for
        this host's own device."""
        data = self._note(position, wish)
        for _ in range(PENDING):
            error = tos.send(self.sock, data, wish.tos)
            if error == errno.EMSGSIZE:
                return False
            if not kernel_errors.is_pending(error):
                break
            self._take_note(error)  # of an earlier one
        return True

    def ask_router(self, position: int, hop: int) -> None:
        """Send a probe that expires at router number `hop` (see `routers`), or reaches the peer."""
        self._route.send(self._note(position, Wish()), hop, self.remote)

    def _note(self, position: int, wish: Wish) -> bytes:
        """The bytes of a new probe, which is registered for its answer."""
        self._next += 1
        self._waiting[self._next] = _Asked(position, time.monotonic())
        return Probe(self._token, self._next, *wish).pack()

    def replies(self) -> list[tuple[int, Reply]]:
        """Replies that have arrived since the last call, with the position of their probe."""
        found: list[tuple[int, Reply]] = []
        for _ in range(MOST_REPLIES):
            try:
                data, ancillary, _, _ = self.sock.recvmsg(LONGEST, tos.ROOM)
            except BlockingIOError:
                return found
            except OSError as exc:
                self._take_note(exc.errno or 0)
                if self.refused:
                    return found
                continue
            now, answer = time.monotonic(), answer_untrusted(data)
            if answer is None or answer.token != self._token:
                continue
            asked = self._waiting.pop(answer.serial, None)
            if asked is not None:
                reply = Reply(answer, tos.received(ancillary), asked.sent_at, now)
                found.append((asked.position, reply))
        return found

    def forget(self) -> None:
        """Ignore answers that are still to come."""
        self._waiting.clear()

    def _take_note(self, error: int) -> None:
        if error in (errno.ECONNREFUSED, errno.EACCES):
            self.refused = True
        self._hear()

    def _hear(self) -> None:
        """Empty the error queue, or the socket stays readable."""
        self._routers.extend(news.router for news in self._route.answers())

    def routers(self) -> list[str]:
        """Addresses that have sent ICMP since the last call."""
        self._hear()
        heard = list(self._routers)
        self._routers.clear()
        return heard

    def close(self) -> None:
        self.sock.close()


def ask(
    wishes: Sequence[tuple[Prober, Wish]], patience: float, tries: int = TRIES
) -> dict[int, Reply]:
    """Replies by position in `wishes`. Sends all probes at once, up to `tries` times each, and
    waits `patience` seconds after each try."""
    found: dict[int, Reply] = {}
    possible = set(range(len(wishes)))
    for _ in range(tries):
        for position in sorted(possible - found.keys()):
            prober, wish = wishes[position]
            if prober.refused or not prober.ask(position, wish):
                possible.discard(position)
        collect({prober for prober, _ in wishes}, found, len(possible | found.keys()), patience)
        if possible <= found.keys():
            break
    for prober, _ in wishes:
        prober.forget()
    return found


def collect(
    probers: Iterable[Prober], found: dict[int, Reply], wanted: int, patience: float
) -> None:
    """Add replies to `found` until it has `wanted`, or for `patience` seconds."""
    by_fd = {prober.sock.fileno(): prober for prober in probers}
    poll = select.poll()
    for fd in by_fd:
        poll.register(fd, select.POLLIN)
    until = time.monotonic() + patience
    while len(found) < wanted and not all(prober.refused for prober in by_fd.values()):
        left = until - time.monotonic()
        for fd, _ in poll.poll(max(left, 0.0) * 1000):
            found.update(by_fd[fd].replies())
            if by_fd[fd].refused:
                poll.unregister(fd)
        if left <= 0:
            return  # after a last poll: a busy host may run this late
