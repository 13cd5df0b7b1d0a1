"""The engine: one process that owns its sockets, its flows and its loop, and shares nothing.

Control talks to it over one command socket, each client over its own lane; the pure endpoint does
the rest. Control starts it with `--fd N`, configuration in DLCPD_ENGINE_CONFIG; it ends when the
command socket closes.
"""

import argparse
import gc
import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any, Final

from dlcpd.collectives.holdings import Budget, Holdings
from dlcpd.collectives.loss.accounts import MAX_LEFT_OVER, Accounts
from dlcpd.collectives.scratch import ScratchPool
from dlcpd.contract.collectives import Share
from dlcpd.contract.errors import (
    AddressUnavailable,
    ArenaFull,
    BadConfig,
    DlcpError,
    OperationAborted,
    PeerLost,
    TooMany,
    error_for,
    made,
)
from dlcpd.core.endpoint import MAX_FLOWS, Endpoint, PeerSpec
from dlcpd.core.paths.health import PathState
from dlcpd.core.paths.pacing import Pacer
from dlcpd.core.session.events import Event as SessionEvent
from dlcpd.core.session.events import PathNews, PeerNews
from dlcpd.core.session.flow import Flow
from dlcpd.core.session.session import Session
from dlcpd.core.trace import Trace
from dlcpd.core.transfer.incoming import NoPlacement
from dlcpd.core.turns import Turns
from dlcpd.core.wire import nh
from dlcpd.core.wire.checksum import Checksum, Keyring
from dlcpd.core.wire.datagram import Transmit
from dlcpd.core.wire.header import Kind
from dlcpd.core.wire.sizes import BASE
from dlcpd.io import commands, control_events, tracing
from dlcpd.io.clients.client import Client
from dlcpd.io.clients.clients import Clients
from dlcpd.io.clients.lane import Lane
from dlcpd.io.config import COUNT_CALLS, EngineConfig
from dlcpd.io.control_frames import pack
from dlcpd.io.control_link import ControlGone, ControlLink
from dlcpd.io.datapath.choices import COMPILED, NUMPY
from dlcpd.io.datapath.compiled import compiled
from dlcpd.io.discovery.closed_ports import ClosedPorts
from dlcpd.io.discovery.mtu import MtuDiscovery, MtuNews
from dlcpd.io.discovery.routes import Discovery
from dlcpd.io.heap import keep_warm
from dlcpd.io.poll import ERROR, WRITE, EngineBroken, Handler, Poll
from dlcpd.io.report import bounded_report
from dlcpd.io.udp.encryption import encryption
from dlcpd.io.udp.udp_path import UdpPath
from dlcpd.ipc.seqpacket import close_all
from dlcpd.ledger.recorder import About, Recorder, mark
from dlcpd.ledger.records import Rank

CARRIED: Final = 2  # descriptors beside an OpenSession: arena and lane
BATCHES_PER_WAKE: Final = 4  # receive calls with data, per socket, before the next socket
READS_PER_WAKE: Final = 64  # receive calls per socket, including those that bring only control
COMMAND_TURN: Final = 0.02  # seconds of commands at a time: each abort of a command may fail an
# operation, and peers suspect an engine that is silent for one second
MAX_FAILURES: Final = 16  # wake-ups in a row with a failed step, before the loop rests
FAILURE_REST: Final = 0.01  # seconds
DRAIN_LOOK: Final = 0.05  # seconds between two checks whether the last operation is over
KINDS: Final = {int(kind): kind.name for kind in Kind}  # of control datagrams, for `effort`


class Engine:
    """Composition and order only; rules live in core and collectives."""

    def __init__(self, config: EngineConfig, control: socket.socket) -> None:
        """Raises AddressUnavailable, BadConfig."""
        self.config = config
        counters, effort, keys = Counter[str](), Counter[str](), Keyring()
        self.encryption = encryption(config.data_encryption)
        self.compiled = None if self.encryption else compiled(config.data_path, counters)
        self.paths = [
            self.encryption.path(index, config, counters, effort)
            if self.encryption
            else UdpPath(index, config, counters, effort, self.compiled, keys=keys)
            for index in range(len(config.paths))
        ]
        self.endpoint = Endpoint(
            min(BASE, config.segment_size),
            sum(path.receive_buffer for path in self.paths),
            Turns(Pacer(config.rate_limit_bps)),
            host=config.host,
            max_window=config.window,
            congestion_control=config.congestion_control,
            alarm_loss=config.alarm_loss,
            counters=counters,
            effort=effort,
            placement=self.compiled.table if self.compiled else NoPlacement(),
            keys=keys,
            hash_rows=self.compiled.hash_rows if self.compiled else nh.of_rows,
            trace=Trace(time.monotonic),
        )
        self._scratch, self._spare = ScratchPool(config.chunk_bytes), ScratchPool(MAX_LEFT_OVER)
        self._budget = Budget.of(config.memory, config.session_memory, config.sessions)
        self.discovery = Discovery(self.endpoint, self.paths)
        self.closed_ports = ClosedPorts()
        self.mtu = MtuDiscovery(
            self.endpoint,
            self.paths,
            config.segment_size,
            self._mtu_changed,
            trailer=self.encryption.trailer if self.encryption else 0,
        )
        self.stop_at: float | None = None
        self._failures = self._in_a_row = 0  # failed steps of the loop; wake-ups in a row with one
        self._poll = Poll(counters)
        self.control = ControlLink(control, counters)
        self.clients = Clients(
            self.endpoint, self.control, self._poll, trouble=self._trouble, forget=self._forget
        )
        self._admit()
        self._poll.watch(self.control, self._on_command)
        for path in self.paths:
            self._poll.watch(path, self._path_handler(path))

    @property
    def endpoints(self) -> list[commands.UdpAddress]:
        """The address of this engine for peers, one for each path."""
        ours = [path.address for path in self.paths]
        told = self.config.relays or [host for host, _ in ours]
        return [commands.UdpAddress(host, port) for host, (_, port) in zip(told, ours, strict=True)]

    # --- the loop -------------------------------------------------------------------

    def run(self) -> None:
        """Run until Stop, or until the command socket closes."""
        endpoint = self.endpoint
        steps = endpoint.handle_timeout, endpoint.exchange, self._send, self._tell_outcomes
        while self.stop_at is None or not self._drained():
            failures = self._failures
            self._run((self._wait,))
            endpoint.effort["wakes"] += 1
            if self.clients.busy:
                self._run((self.clients.work,))
            self._run(steps, time.monotonic())
            self._poll.watch_writing(self.control, bool(self.control.backlog))
            failed = self._failures != failures
            if failed or self._in_a_row:
                self._rest(failed=failed)
        self.clients.delivery.end_all()

    def _run(self, steps: Iterable[Callable[..., None]], *arguments: Any) -> None:
        """Run the steps of a wake-up in order. A bug in one does not stop the others."""
        for step in steps:
            try:
                step(*arguments)
            except Exception as exc:
                self._failed(exc)

    def _failed(self, bug: Exception) -> None:
        self._failures += 1
        self.endpoint.fault(0, bug)

    def _rest(self, *, failed: bool) -> None:
        """Pause, so that a step that fails at every wake-up does not take a whole CPU."""
        self._in_a_row = self._in_a_row + 1 if failed else 0
        if self._in_a_row > MAX_FAILURES:
            time.sleep(FAILURE_REST)

    def _wait(self) -> None:
        """Wait for descriptors or timers, and call their handlers. A method, so that the last
        handler is dropped at its end: it may belong to a client that is gone, and hold the
        arena."""
        for handler, mask in self._poll.wait(self._timeout(time.monotonic())):
            try:
                handler(mask, time.monotonic())
            except Exception as exc:  # a bug: the other handlers run
                self._failed(exc)

    def _timeout(self, now: float) -> float:
        """Seconds for which nothing is due; below 0: no limit."""
        endpoint = self.endpoint
        if self.clients.busy or endpoint.more_here or endpoint.turns.more:
            return 0.0
        due = endpoint.next_timeout()
        timeout = -1.0 if due is None else max(due - now, 0.0)
        if self.stop_at is not None:
            timeout = DRAIN_LOOK if timeout < 0 else min(timeout, DRAIN_LOOK)
        return timeout

    def _send(self, now: float) -> None:
        """Send all that may leave now."""
        batches = self.endpoint.transmit(now)
        batch = next(batches, None)
        self._send_controls(now)  # just before the data: the peer wakes up once for both
        if batch is not None:
            self._send_data(batch, batches, now)

    def _send_data(self, first: Transmit, others: Iterator[Transmit], now: float) -> None:
        began, size = time.monotonic(), 0
        for batch in chain([first], others):
            path = self.paths[batch.path]
            path.send(batch)
            size += batch.size
            self.mtu.watch(batch.peer, now)
            if path.too_big:
                self.mtu.on_refused(path, now)
            if path.backlog:  # other paths go on
                self.endpoint.full.add(path.index)
                self._poll.watch_writing(path, wanted=True)
        self.endpoint.turns.took(size, time.monotonic() - began)

    def _send_controls(self, now: float) -> None:
        for control in self.endpoint.controls(now):
            self.endpoint.effort[KINDS[control.data[1]]] += 1
            self.paths[control.path].send_control(control)

    def _tell_outcomes(self, _now: float) -> None:
        """Report outcomes to control and to clients."""
        for session in self.endpoint.sessions.values():
            if session.outcomes.events:
                try:
                    events = session.outcomes.take()
                    self._tell_control(events)
                    self.clients.tell(session.number, events)
                except Exception as exc:  # a bug: the other sessions go on
                    self.endpoint.fault(session.number, exc)
        for number, bug in self.endpoint.take_faults():
            self.clients.fault(number, bug)
        if self.encryption and self.encryption.spent:
            self._end_spent(self.encryption.spent)
        if self.clients.delivery:
            self.clients.delivery.look()
        self.clients.close_ended()

    def _tell_control(self, events: list[SessionEvent]) -> None:
        for event in events:
            if isinstance(event, PathNews):
                self._on_path_news(event)
            elif isinstance(event, PeerNews):
                number, rank, state, silent = event
                self.control.emit(control_events.PeerChanged(number, rank, state.value, silent))

    def _end_spent(self, spent: set[int]) -> None:
        """End the sessions of flows that have no counter left for another datagram."""
        for flow in [self.endpoint.flows[index] for index in spent & self.endpoint.flows.keys()]:
            assert isinstance(flow.session, Session)  # noqa: S101  # open_session made it so
            error = TooMany(
                f"rank {flow.rank} on {flow.host}: as many datagrams have gone to it as one "
                f"session's keys are good for; join again"
            )
            self.clients.end(flow.session.number, error)
        spent.clear()

    def _drained(self) -> bool:
        late = self.stop_at is not None and time.monotonic() >= self.stop_at
        return late or not any(s.operations for s in self.endpoint.sessions.values())

    # --- the network ------------------------------------------------------------------

    def _path_handler(self, path: UdpPath) -> Handler:
        def handle(mask: int, now: float) -> None:
            if mask & ERROR:
                self._on_icmp(path, now)
            if mask & WRITE and path.send_backlog():
                self.endpoint.on_room(path.index)
                self._poll.watch_writing(path, wanted=False)
            try:
                self._receive(path, now)
            finally:
                if path.lost:
                    self._lose(path)

        return handle

    def _receive(self, path: UdpPath, now: float) -> None:
        left = BATCHES_PER_WAKE
        for _ in range(READS_PER_WAKE):
            batches = path.receive()
            if not batches:
                return
            with_data = False
            for batch in batches:
                with_data |= batch.count > 0
                batch.strays = self.mtu.take(path, batch.strays, now)
                self.endpoint.receive(batch, now)
            left -= with_data
            if left <= 0 or (path.drained and with_data):
                return  # else it was control alone, and data after it may have come

    def _lose(self, path: UdpPath) -> None:
        """Stop using a path whose socket is gone. Raises: EngineBroken if it was the last."""
        self._poll.forget(path)
        self.endpoint.full.add(path.index)
        if all(each.lost for each in self.paths):
            raise EngineBroken

    def _on_icmp(self, path: UdpPath, now: float) -> None:
        for news in path.probe.answers():
            try:
                if news.mtu:
                    self.mtu.on_icmp(path, news, now)
                elif news.refused:
                    if not self.closed_ports.on_refused(news, now):
                        self.endpoint.counters["icmp"] += 1
                else:
                    self.discovery.on_answer(news)
            except Exception as exc:  # a bug: this message is lost, as ICMP often is
                self.endpoint.fault(0, exc)

    def _mtu_changed(self, news: MtuNews) -> None:
        self.control.emit(control_events.PathMtuChanged(**asdict(news)))

    def _on_path_news(self, news: PathNews) -> None:
        number, rank, path, state, loss = news
        self.control.emit(control_events.PathChanged(number, rank, path, state.value, loss))
        flow = self.endpoint.sessions[number].flows[rank]
        self.mtu.refresh(flow)
        if state is PathState.UP:
            self.discovery.repeat(flow, time.monotonic())

    def _trouble(self, session: int) -> str:
        """The known problems of the network, for the text of an error."""
        return self.mtu.trouble(session, self.config.host)

    def _admit(self, without: Session | None = None) -> bool:
        """Have the kernel refuse datagrams that no peer of an open session can have sent. False: on
        some path it refuses more than those."""
        flows = self.endpoint.flows.values()
        tokens = [flow.token_in for flow in flows if flow.session is not without]
        return all([path.admit(tokens) for path in self.paths])

    def _forget(self, session: Session) -> None:
        """A session is about to close: send its peers the last answers, and forget its flows."""
        self._admit(without=session)
        for control in self.endpoint.final_controls(session.number, time.monotonic()):
            self.paths[control.path].send_control(control)
        for flow in session.flows.values():
            self.discovery.forget(flow)
            self.mtu.forget(flow)
            self.closed_ports.forget(flow)
            for path in self.paths:
                path.disconnect(flow.index)
            if self.encryption:
                self.encryption.remove(flow.index, flow.token_in)

    # --- control ----------------------------------------------------------------------------

    def _on_command(self, mask: int, now: float) -> None:
        if mask & WRITE:
            self.control.flush()
        while time.monotonic() - now < COMMAND_TURN:
            received = self.control.receive()
            if received is None:
                return
            command, descriptors = received
            if command is None:
                self.stop_at = now  # control is gone, and the engine has no other purpose
                return
            if isinstance(command, commands.OpenSession):
                self._open(command, descriptors)
            else:
                self._obey(command, now)

    def _obey(self, command: commands.Command, now: float) -> None:
        match command:
            case commands.ReportRequest(ledger):
                self.control.emit(control_events.Report(self._report(ledger)))
            case commands.TraceRequest(what):
                self.control.emit(tracing.obey(self.endpoint.trace, what))
            case commands.Stop(drain):
                self.stop_at = now + drain
                self.clients.draining = True
            case commands.LeaveSession(number, code, text):
                self.clients.leave(number, error_for(code, text), now)
            case commands.CloseSession(number, code, text):
                self.clients.close(number, error_for(code, text))
            case (
                commands.PeerGone(number)
                | commands.PeerLeft(number)
                | commands.PeerDoubted(number)
                | commands.AbortOperations(number)
            ):
                if session := self.endpoint.sessions.get(number):  # else it is gone: no error
                    try:
                        _pass_on(command, session, now)
                    except Exception as exc:  # a bug: the other sessions go on
                        self.clients.fault(number, exc)

    def _report(self, ledger: int) -> dict[str, Any]:
        accounts = {client.session.number: client.lane.accounts for client in self.clients}
        try:
            return bounded_report(self.endpoint, self.paths, self.mtu, accounts, ledger)
        except Exception as exc:  # a bug: the report only names it
            self.endpoint.counters["internal"] += 1
            return {"error": f"{type(exc).__name__}: {exc}"}

    def _open(self, ask: commands.OpenSession, descriptors: list[int]) -> None:
        """Serve a new session, or report why not: then the client's lane closes."""
        try:
            lane = self._lane(ask, descriptors)
        except DlcpError as exc:
            self.control.emit(control_events.SessionEnded(ask.session, exc.code, str(exc)))
            return
        try:
            self._begin(ask, lane)
        except Exception as exc:
            if ask.session not in self.clients:
                lane.close()
            self._not_begun(ask.session, exc)

    def _not_begun(self, number: int, why: Exception) -> None:
        if isinstance(why, DlcpError):
            self.clients.end(number, why)
        elif isinstance(why, OSError):
            error = TooMany(f"the kernel refuses what one more session needs: {why}")
            self.clients.end(number, error)
        else:  # a bug: the other sessions go on
            self.clients.fault(number, why)

    def _lane(self, ask: commands.OpenSession, descriptors: list[int]) -> Lane:
        """Raises: TooMany, ArenaFull; the descriptors are closed."""
        room = len(self.endpoint.flows) + len(ask.peers) <= MAX_FLOWS
        if not room or len(descriptors) < CARRIED:
            close_all(descriptors)
            if room:  # the kernel drops descriptors beyond this process's limit
                raise TooMany("the engine has no descriptors left: raise its limit (ulimit -n)")
            raise TooMany(f"an engine has at most {MAX_FLOWS} flows to peers")
        arena, lane = descriptors
        try:
            accounts = Accounts(Holdings(self._budget), self._spare)
            return Lane(
                ask.session, arena, ask.arena_bytes, lane, accounts, counters=self.endpoint.counters
            )
        except (OSError, ValueError) as exc:
            size = ask.arena_bytes
            raise ArenaFull(f"the engine has no room to map an arena of {size} B: {exc}") from exc

    def _begin(self, ask: commands.OpenSession, lane: Lane) -> None:
        paths = len(self.paths)
        peers = [
            PeerSpec(
                p.rank,
                p.host,
                p.token_in,
                p.token_out,
                min(paths, len(p.endpoints)),
                self._checked_with(p),
            )
            for p in ask.peers
        ]
        session = self.endpoint.open_session(
            ask.session,
            ask.rank,
            peers,
            peer_timeout=self.config.peer_timeout,
            suspect_after=self.config.suspect_after,
            digest_key=ask.digest_key,
        )
        if not self._admit():
            raise TooMany("the kernel has no memory for the socket filter of one more session")
        share = Share(ask.engine, ask.engines)
        recorder = self._recorder(ask, lane)
        client = Client(lane, session, self.config, self._scratch, share, recorder)
        self.clients.add(client, ask.inherits)
        for peer in ask.peers:
            flow = session.flows[peer.rank]
            host, port = peer.endpoints[0]
            flow.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            self.closed_ports.add(flow)
            self._protect(flow, peer)
            self._aim(ask.session, flow, peer.endpoints)
        self.control.emit(control_events.SessionOpened(ask.session))

    def _checked_with(self, peer: commands.EnginePeer) -> bytes:
        """The secret that keys a peer's checksums; empty if datagrams are encrypted, and verified
        by that."""
        return b"" if self.encryption else peer.secret_in

    def _protect(self, flow: Flow, peer: commands.EnginePeer) -> None:
        if self.encryption:
            self.encryption.add(flow.index, peer.token_in, peer.secret_in, peer.secret_out)
        elif peer.secret_out:
            checksum = Checksum(peer.secret_out)
            for path in self.paths:
                path.seal(flow.index, checksum)

    def _aim(self, session: int, flow: Flow, endpoints: list[commands.UdpAddress]) -> None:
        """Begin the discovery of routes and MTU towards a peer. Raises: AddressUnavailable."""
        now = time.monotonic()
        try:
            self.discovery.begin(flow, endpoints, now)
            self.mtu.begin(session, flow, endpoints, now)
        except OSError as exc:  # a zone that this host has not, or the other family of addresses
            where = ", ".join(host for host, _ in endpoints)
            raise AddressUnavailable(
                f"rank {flow.rank} on {flow.host} says that it is at {where}, and this host cannot "
                f"send there: {exc}; see [network] paths of both hosts"
            ) from exc

    def _recorder(self, ask: commands.OpenSession, lane: Lane) -> Recorder | None:
        config = self.config
        if not config.ledger:
            return None

        def told(text: str) -> None:
            self.endpoint.counters["ledger_ended"] += 1
            self.control.emit(control_events.LedgerEnded(ask.session, text))

        ranks = [Rank(p.rank, p.host, mark(p.token_in), mark(p.token_out)) for p in ask.peers]
        about = About(ask.job, ask.session, ask.rank, ask.engine, ask.engines, ranks)
        return Recorder(
            about,
            Path(config.ledger),
            most=config.ledger_bytes,
            inputs=config.ledger_inputs,
            accounts=lane.accounts,
            told=told,
        )

    def count_calls(self) -> None:
        """Count the calls of Python and of C from now on; every call then takes twice as long."""
        effort = self.endpoint.effort

        def count(_frame: Any, event: str, _argument: Any) -> None:
            if event in ("call", "c_call"):
                effort["python_calls"] += 1

        sys.setprofile(count)


def _pass_on(
    command: (
        commands.PeerGone | commands.PeerLeft | commands.PeerDoubted | commands.AbortOperations
    ),
    session: Session,
    now: float,
) -> None:
    """Pass reports on peers to the session that they are about."""
    if isinstance(command, commands.PeerGone):
        error = PeerLost(command.text, session.peer(command.rank))
        session.peer_gone(command.rank, error, now)
        return
    if isinstance(command, commands.PeerLeft):
        left = PeerLost(command.text, session.peer(command.rank))
        session.peer_left(command.rank, command.begun, left, now, last=command.last)
        return
    if isinstance(command, commands.PeerDoubted):
        session.doubt(command.rank, command.sign, now)
        return
    for aborted in command.aborted:
        reason = made(OperationAborted, aborted.text, session.peer(aborted.lost))
        session.abort(aborted.rank, aborted.stream, aborted.operation, reason, now)


def _pin(cpus: tuple[int, ...]) -> None:
    """Run on these CPUs only; on all if there are none.

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
        control.send(pack(control_events.EngineFailed(exc.code, str(exc))))
        return 1
    features = {
        "data_path": COMPILED if engine.compiled else NUMPY,
        "data_encryption": config.data_encryption,
        "gso": all(path.gso for path in engine.paths),
        "gro": all(path.gro for path in engine.paths),
        "receive_buffer": min(path.receive_buffer for path in engine.paths),
    }
    control.send(pack(control_events.EngineReady(engine.endpoints, features)))
    if os.environ.get(COUNT_CALLS):
        engine.count_calls()
    keep_warm()
    gc.freeze()  # these objects live to the end: keep them out of collections
    gc.set_threshold(20_000, 20, 20)  # the data path makes no cycles
    try:
        engine.run()
    except ControlGone:
        return 0  # raised in the middle of a step
    except EngineBroken:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
