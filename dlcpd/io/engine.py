"""The engine: one process that owns its sockets, its flows and its loop, and shares nothing.

Control speaks to it over one command socket, each client over its own lane; the pure
endpoint does the rest. `python -m dlcpd.io.engine --fd N`, configuration in
DLCPD_ENGINE_CONFIG; it ends when the command socket does.
"""

import argparse
import gc
import os
import select
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import chain
from typing import Any, Final

from dlcpd.collectives.accounts import Accounts
from dlcpd.collectives.scratch import ScratchPool
from dlcpd.contract.errors import BadConfig, BadMessage, DlcpError, SessionClosed, error_for
from dlcpd.contract.messages import Completed, Failed, Released, Submit
from dlcpd.core.endpoint import MAX_FLOWS, Endpoint, PeerSpec
from dlcpd.core.paths.health import PathState
from dlcpd.core.paths.pacing import Pacer
from dlcpd.core.session.events import (
    Event,
    OperationDone,
    OperationFailed,
    OperationReleased,
    PathNews,
    SessionBroken,
)
from dlcpd.core.timers import Timer
from dlcpd.core.transfer.incoming import NoPlacement
from dlcpd.core.wire.datagram import Transmit
from dlcpd.core.wire.header import Kind
from dlcpd.core.wire.sizes import BASE
from dlcpd.io import commands
from dlcpd.io.clients.client import Client
from dlcpd.io.clients.lane import Lane
from dlcpd.io.config import COUNT_CALLS, EngineConfig
from dlcpd.io.datapath.compiled import compiled
from dlcpd.io.datapath.library import COMPILED, NUMPY
from dlcpd.io.discovery.mtu import MtuDiscovery, MtuNews
from dlcpd.io.discovery.routes import Discovery
from dlcpd.io.report import bounded_report
from dlcpd.io.udp.udp_path import UdpPath
from dlcpd.ipc.seqpacket import receive
from dlcpd.schedules.divide import Share

BATCHES_PER_WAKE: Final = 4  # receive calls per socket before others get their turn
FRAMES_PER_WAKE: Final = 64  # submissions per lane and wake-up, likewise
FINE_SLEEP: Final = 0.001  # seconds; below it, epoll's millisecond is too coarse
KINDS: Final = {int(kind): kind.name for kind in Kind}  # of control datagrams, for the account
LANE_DELAY: Final = (
    2e-3  # seconds a Released may wait for company; a client short of memory waits too
)


class Engine:
    """Composition and order only; rules live in core and collectives."""

    def __init__(self, config: EngineConfig, control: socket.socket) -> None:
        """Raises AddressUnavailable, BadConfig."""
        self.config = config
        self.control = control
        counters, effort = Counter[str](), Counter[str]()
        self.compiled = compiled(config.data_path)
        self.paths = [
            UdpPath(index, config, counters, effort, self.compiled)
            for index in range(len(config.paths))
        ]
        self.endpoint = Endpoint(
            min(BASE, config.segment_size),
            sum(path.receive_buffer for path in self.paths),
            Pacer(config.rate_limit_bps),
            host=config.host,
            max_window=config.window,
            congestion_control=config.congestion_control,
            alarm_loss=config.alarm_loss,
            counters=counters,
            effort=effort,
            placement=self.compiled.table if self.compiled else NoPlacement(),
        )
        self._scratch = ScratchPool(config.chunk_bytes)
        self.discovery = Discovery(self.endpoint, self.paths)
        self.mtu = MtuDiscovery(self.endpoint, self.paths, config.segment_size, self._mtu_changed)
        self.clients: dict[int, Client] = {}
        self.stop_at: float | None = None
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int, float], None]] = {}
        self._full: set[UdpPath] = set()  # those that the kernel takes nothing more for now
        self._watch(control, self._on_command)
        for path in self.paths:
            self._watch(path, self._path_handler(path))

    # --- the loop -------------------------------------------------------------------

    def run(self) -> None:
        """Until Stop, or the command socket ends."""
        while self.stop_at is None or not self._drained():
            now = time.monotonic()
            for fd, mask in self._wait(now):
                handler = self._handlers.get(fd)
                if handler is not None:  # an earlier handler of this round may have closed it
                    handler(mask, now := time.monotonic())
            self.endpoint.effort["wakes"] += 1
            now = time.monotonic()
            self.endpoint.handle_timeout(now)
            self._pump(now)

    def _wait(self, now: float) -> list[tuple[int, int]]:
        due = self.endpoint.next_timeout()
        timeout = -1.0 if due is None else max(due - now, 0.0)
        if self.stop_at is not None:
            timeout = 0.05 if timeout < 0 else min(timeout, 0.05)
        if self.endpoint.more and not self._full:
            timeout = 0.0
        if 0.0 < timeout < FINE_SLEEP:
            select.select([self._epoll.fileno()], [], [], timeout)
            timeout = 0.0
        return self._epoll.poll(timeout if timeout >= 0 else None)

    def _pump(self, now: float) -> None:
        """Everything that wants to leave: control first, then data, then answers to clients."""
        self.endpoint.exchange(now)
        batches = iter(()) if self._full else self.endpoint.transmit(now)
        batch = next(batches, None)
        self._send_controls(now)  # close before the data: the peer wakes up once for both
        if batch is not None:
            self._send_data(batch, batches, now)
        for session in list(self.endpoint.sessions.values()):
            if session.outcomes.events:
                events = session.outcomes.take()
                for event in events:
                    self._tell(event)

    def _send_data(self, first: Transmit, others: Iterator[Transmit], now: float) -> None:
        began, size = time.monotonic(), 0
        for batch in chain([first], others):
            path = self.paths[batch.path]
            path.send(batch)
            size += batch.size
            self.mtu.watch(batch.peer, now)
            if path.too_big:
                self.mtu.on_refused(path, now)
            if path.backlog:
                self._full.add(path)
                self._epoll.modify(path, select.EPOLLIN | select.EPOLLOUT)
                break
        self.endpoint.took(size, time.monotonic() - began)

    def _send_controls(self, now: float) -> None:
        for control in self.endpoint.controls(now):
            self.endpoint.effort[KINDS[control.data[1]]] += 1
            self.paths[control.path].send_control(control)

    def _drained(self) -> bool:
        late = self.stop_at is not None and time.monotonic() >= self.stop_at
        return late or not any(s.operations for s in self.endpoint.sessions.values())

    def _watch(self, source: Any, handler: Callable[[int, float], None]) -> None:
        self._handlers[source.fileno()] = handler
        self._epoll.register(source, select.EPOLLIN)

    def _unwatch(self, source: Any) -> None:
        self._epoll.unregister(source)
        del self._handlers[source.fileno()]

    # --- the network ------------------------------------------------------------------

    def _path_handler(self, path: UdpPath) -> Callable[[int, float], None]:
        def handle(mask: int, now: float) -> None:
            if mask & select.EPOLLERR:
                self._on_icmp(path, now)
            if mask & select.EPOLLOUT and path.send_backlog():
                self._full.discard(path)
                self._epoll.modify(path, select.EPOLLIN)
            for _ in range(BATCHES_PER_WAKE):
                batches = path.receive()
                if not batches:
                    return
                for batch in batches:
                    batch.strays = self.mtu.take(path, batch.strays, now)
                    self.endpoint.receive(batch, now)
                if path.drained and any(batch.count for batch in batches):
                    return  # else it was control, and what follows it is here by now

        return handle

    def _on_icmp(self, path: UdpPath, now: float) -> None:
        for news in path.probe.answers():
            if news.mtu:
                self.mtu.on_icmp(path, news, now)
            else:
                self.discovery.on_answer(news)

    def _mtu_changed(self, news: MtuNews) -> None:
        self._emit(commands.PathMtuChanged(**asdict(news)))

    # --- clients -------------------------------------------------------------------------

    def _lane_handler(self, client: Client) -> Callable[[int, float], None]:
        lane = client.lane

        def handle(mask: int, now: float) -> None:
            if mask & select.EPOLLOUT:
                lane.flush()
                self._watch_backlog(lane)
            for _ in range(FRAMES_PER_WAKE):
                try:
                    message = lane.receive()
                    if message is None:
                        return
                    self._on_message(client, message, now)
                except BadMessage as exc:
                    self.endpoint.counters["bad_message"] += 1
                    self._send(lane, Failed(0, exc.code, str(exc)))
                except EOFError:
                    self._emit(commands.LaneClosed(lane.session))
                    self._close(lane.session, SessionClosed("the client ended"))
                    return

        return handle

    def _on_message(self, client: Client, message: Any, now: float) -> None:
        if isinstance(message, Submit) and self.stop_at is not None:
            error: DlcpError | None = SessionClosed("the daemon is shutting down")
        else:
            error = client.handle(message, now)
        if error is not None:
            self._send(client.lane, Failed(message.operation, error.code, str(error)))

    def _tell(self, event: Event) -> None:
        """A session's event, to the client and where it matters to control."""
        client = self.clients.get(event.session)
        if client is None:
            return
        lane = client.lane
        match event:
            case OperationDone(_, number, released, stats, source):
                self._send(
                    lane,
                    Completed(number, released, stats.sent, stats.repaired, stats.given_up,
                              stats.returned, stats.lost, min(stats.energy, 1.0), source,
                              lane.take_released()),
                )  # fmt: skip
            case OperationReleased(_, number):
                if not lane.released:  # not at once: waking the client costs more than the news
                    at = time.monotonic() + LANE_DELAY
                    self.endpoint.timers.set((self, Timer.RELEASED, lane.session), at)
                lane.released.append(number)
            case OperationFailed(_, ticket, code, text, stream, number, ranks):
                text += self.mtu.trouble(event.session, self.config.host)
                self._send(lane, Failed(ticket, code, text))
                if ranks:
                    self._emit(
                        commands.OperationFailed(
                            lane.session, stream, number, list(ranks), code, text
                        )
                    )
            case PathNews(_, rank, path, state, loss):
                self._emit(commands.PathChanged(lane.session, rank, path, state.value, loss))
                flow = self.endpoint.sessions[lane.session].flows[rank]
                self.mtu.refresh(flow)
                if state is PathState.UP:
                    self.discovery.repeat(flow, time.monotonic())
            case SessionBroken(_, rank, code, text):
                text += self.mtu.trouble(event.session, self.config.host)
                self._send(lane, Failed(0, code, text))
                self._emit(commands.SessionBroken(lane.session, rank, code, text))

    def _send(self, lane: Lane, message: Completed | Released | Failed) -> None:
        if not lane.send(message):
            self._emit(commands.LaneClosed(lane.session))
            self._close(lane.session, SessionClosed("the client does not read its lane"))
        elif lane.backlog:
            self._watch_backlog(lane)

    def handle_timer(self, timer: Timer, subject: int, now: float) -> None:
        """What was released has waited long enough for an outcome that goes to its client."""
        client = self.clients.get(subject)
        if client is not None:
            for number in client.lane.take_released():
                self._send(client.lane, Released(number))

    def _watch_backlog(self, lane: Lane) -> None:
        if lane.fileno() in self._handlers:
            waiting = select.EPOLLOUT if lane.backlog else 0
            self._epoll.modify(lane, select.EPOLLIN | waiting)

    def _close(self, number: int, error: DlcpError) -> None:
        """Fail what is open, tell the client if it still listens, forget the session."""
        session = self.endpoint.sessions.get(number)
        if session is None:
            return
        session.fail_all(session.rank, error)
        for event in session.outcomes.events:
            self._tell(event)
        for control in self.endpoint.final_controls(number, time.monotonic()):
            self.paths[control.path].send_control(control)
        for flow in session.flows.values():
            self.discovery.forget(flow)
            self.mtu.forget(flow)
            for path in self.paths:
                path.disconnect(flow.index)
        self.endpoint.close_session(number)
        client = self.clients.pop(number, None)
        if client is not None:
            self._unwatch(client.lane)
            client.lane.close()

    # --- control ----------------------------------------------------------------------------

    def _on_command(self, mask: int, now: float) -> None:
        data, descriptors = receive(self.control, commands.MAX_COMMAND)
        if not data:
            self.stop_at = now  # control is gone, and so is our reason to live
            return
        command = commands.unpack(data)
        if isinstance(command, commands.OpenSession):
            self._open(command, *descriptors)
        else:
            self._obey(command, now)

    def _obey(self, command: Any, now: float) -> None:
        """Commands about what exists already; a session that is gone is no error."""
        match command:
            case commands.CloseSession(number, code, text):
                self._close(number, error_for(code, text))
            case commands.PeerGone(number, rank, text):
                if session := self.endpoint.sessions.get(number):
                    session.peer_gone(rank, error_for("peer_lost", text))
            case commands.AbortOperation(number, stream, operation, rank, text):
                if session := self.endpoint.sessions.get(number):
                    session.abort(rank, stream, operation, error_for("operation_aborted", text))
            case commands.ReportRequest(ledger):
                self._emit(
                    commands.Report(
                        bounded_report(
                            self.endpoint, self.paths, self.mtu, self._accounts(), ledger
                        )
                    )
                )
            case commands.Stop(drain):
                self.stop_at = now + drain

    def _open(self, ask: commands.OpenSession, arena: int, lane_fd: int) -> None:
        if len(self.endpoint.flows) + len(ask.peers) > MAX_FLOWS:
            os.close(arena)
            os.close(lane_fd)  # the client sees its lane end; control hears LaneClosed
            self._emit(commands.LaneClosed(ask.session))
            return
        lane = Lane(ask.session, arena, ask.arena_bytes, lane_fd)
        paths = len(self.paths)
        peers = [
            PeerSpec(p.rank, p.host, p.token_in, p.token_out, min(paths, len(p.endpoints)))
            for p in ask.peers
        ]
        session = self.endpoint.open_session(
            ask.session, ask.rank, peers, peer_timeout=self.config.peer_timeout
        )
        for peer in ask.peers:
            flow = session.flows[peer.rank]
            host, port = peer.endpoints[0]
            flow.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            self.discovery.begin(flow, peer.endpoints, time.monotonic())
            self.mtu.begin(ask.session, flow, peer.endpoints, time.monotonic())
        share = Share(ask.engine, ask.engines)
        client = Client(lane, session, self.config, self._scratch, share)
        self.clients[ask.session] = client
        self._watch(lane, self._lane_handler(client))

    def _accounts(self) -> dict[int, Accounts]:
        return {number: client.lane.accounts for number, client in self.clients.items()}

    def count_calls(self) -> None:
        """Count the calls of Python and of C from now on; every call then takes twice as long."""
        effort = self.endpoint.effort

        def count(_frame: Any, event: str, _argument: Any) -> None:
            if event in ("call", "c_call"):
                effort["python_calls"] += 1

        sys.setprofile(count)

    def _emit(self, event: commands.Event) -> None:
        self.control.send(commands.pack(event))


def _pin(cpus: tuple[int, ...]) -> None:
    """Run on these CPUs only; on any where there are none.

    Raises: BadConfig.
    """
    if missing := set(cpus) - os.sched_getaffinity(0):
        raise BadConfig(f"[network] engine_cpus: this process may not run on CPU {min(missing)}")
    if cpus:
        os.sched_setaffinity(0, cpus)


def main() -> int:
    """Entry point of the child process."""
    parser = argparse.ArgumentParser(prog="dlcpd.io.engine")
    parser.add_argument("--fd", type=int, required=True)
    control = socket.socket(fileno=parser.parse_args().fd)
    config = EngineConfig.from_json(os.environ["DLCPD_ENGINE_CONFIG"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for control to handle
    try:
        _pin(config.cpus)
        engine = Engine(config, control)
    except DlcpError as exc:
        control.send(commands.pack(commands.EngineFailed(exc.code, str(exc))))
        return 1
    features = {
        "data_path": COMPILED if engine.compiled else NUMPY,
        "gso": all(path.gso for path in engine.paths),
        "gro": all(path.gro for path in engine.paths),
        "receive_buffer": min(path.receive_buffer for path in engine.paths),
    }
    endpoints = [commands.UdpAddress(*path.address) for path in engine.paths]
    control.send(commands.pack(commands.EngineReady(endpoints, features)))
    if os.environ.get(COUNT_CALLS):
        engine.count_calls()
    gc.freeze()  # what lives now lives to the end: keep it out of collections
    gc.set_threshold(20_000, 20, 20)  # the data path makes no cycles
    try:
        engine.run()
    except (BrokenPipeError, ConnectionResetError):
        return 0  # control went away in the middle of an event
    return 0


if __name__ == "__main__":
    sys.exit(main())
