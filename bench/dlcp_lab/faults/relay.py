"""A relay between all hosts, in a thread: forwards their datagrams and connections.

Datagrams pass the rules one by one, in order of arrival. Connections of control processes are held
while their hosts are cut off, like TCP while its packets are lost.
"""

import contextlib
import os
import selectors
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Self

from dlcp_lab.faults.network import DATA_PORT, Network
from dlcp_lab.faults.pipes import Pipes
from dlcp_lab.faults.rules import Passage, Rule

RECEIVE: Final = 8 << 20  # bytes asked for, so that the relay itself loses nothing
PRIORITY: Final = -15  # of nice(2)
PER_TURN: Final = 64  # datagrams of one socket before the next socket
IDLE: Final = 0.002  # seconds without a datagram, after which rules forward what they hold
MAX_DATAGRAM: Final = 1 << 16
WATCH: Final = 60.0  # seconds; longest wait of the loop


@dataclass(eq=False, slots=True)
class Trigger:
    """Calls `act` once, before the first datagram for which `seen` is true is forwarded."""

    seen: Callable[[Passage], bool]
    act: Callable[[], None]
    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None

    def look(self, passage: Passage) -> bool:
        """Call `act` if `seen` is true; whether it did."""
        if not self.seen(passage):
            return False
        try:
            self.act()
        except BaseException as exc:  # `wait` raises it
            self.error = exc
        self.done.set()
        return True

    def wait(self, timeout: float) -> None:
        """Wait until `act` has run. Raises: TimeoutError; the error of `act`."""
        if not self.done.wait(timeout):
            raise TimeoutError(f"no datagram triggered the fault within {timeout:g} s")
        if self.error:
            raise self.error


class Relay(threading.Thread):
    """A context. `network` has the addresses; `pids` gives the control process id of each host."""

    def __init__(self, network: Network, pids: Callable[[], Sequence[int]]) -> None:
        super().__init__(name="relay", daemon=True)
        self.network, self.passed = network, 0
        self._lock = threading.Lock()  # other threads change the rules and triggers
        self._rules: tuple[Rule, ...] = ()
        self._triggers: tuple[Trigger, ...] = ()
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ, lambda: self._woken.recv(64))
        self._stopping = False
        self._sockets = {
            (host, path): _udp(network.relay(host, path))
            for host in range(network.hosts)
            for path in range(network.paths)
        }
        for key, sock in self._sockets.items():
            self._selector.register(sock, selectors.EVENT_READ, partial(self._datagrams, *key))
        self._pipes = Pipes(network, pids, self._selector)

    def add(self, rule: Rule) -> None:
        """Pass every datagram through the rule, after all earlier rules."""
        with self._lock:
            self._rules += (rule,)

    def remove(self, rule: Rule) -> None:
        """Remove the rule, if present, and forward the datagrams that it holds."""
        with self._lock:
            self._rules = tuple(each for each in self._rules if each is not rule)
        for passage in rule.rest():
            self._forward(passage)

    def when(self, seen: Callable[[Passage], bool], act: Callable[[], None]) -> Trigger:
        """Call `act` once, in the relay's thread, before a datagram for which `seen` is true."""
        trigger = Trigger(seen, act)
        with self._lock:
            self._triggers += (trigger,)
        return trigger

    def forget(self, trigger: Trigger) -> None:
        """Remove the trigger, if present."""
        with self._lock:
            self._triggers = tuple(each for each in self._triggers if each is not trigger)

    def cut_controls(self, pairs: Iterable[frozenset[int]]) -> None:
        """Hold the control connections of these pairs of hosts; () continues all."""
        self._pipes.cut(pairs)
        self._wake.send(b"!")

    @property
    def held(self) -> int:
        """Number of times that data arrived on a connection that was cut."""
        return self._pipes.held

    def run(self) -> None:
        """The loop."""
        with contextlib.suppress(PermissionError):  # load must not starve the network
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), PRIORITY)
        while not self._stopping:
            ready = self._selector.select(IDLE if self._rules else WATCH)
            if not ready:
                for rule in self._rules:
                    self._forward_all(rule.rest())
            self._pipes.go_on()
            for key, _ in ready:
                key.data()

    def _datagrams(self, target: int, path: int) -> None:
        sock = self._sockets[target, path]
        for _ in range(PER_TURN):
            try:
                data, (address, _port) = sock.recvfrom(MAX_DATAGRAM)
            except BlockingIOError:
                return
            except OSError:  # ICMP: the port of an ended daemon is closed
                continue
            self._take(Passage(self.network.host_of(address), target, path, data))

    def _take(self, passage: Passage) -> None:
        self.passed += 1
        for trigger in self._triggers:
            if not trigger.done.is_set() and trigger.look(passage):
                self.forget(trigger)
        passages: Sequence[Passage] = (passage,)
        for rule in self._rules:
            passages = [out for each in passages for out in rule.take(each)]
        self._forward_all(passages)

    def _forward_all(self, passages: Sequence[Passage]) -> None:
        for passage in passages:
            self._forward(passage)

    def _forward(self, passage: Passage) -> None:
        """Send it from the relay's address for its source, which the target knows."""
        source = self._sockets[passage.source, passage.path]
        to = (self.network.address(passage.target, passage.path), DATA_PORT)
        with contextlib.suppress(OSError):  # full buffer, or ICMP for an earlier one
            source.sendto(passage.data, to)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        self._wake.send(b"!")
        self.join()
        self._pipes.close()
        for sock in (*self._sockets.values(), self._wake, self._woken):
            sock.close()
        self._selector.close()


def _udp(address: str) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE)
    sock.bind((address, DATA_PORT))
    return sock
