"""The engine: one process that owns its sockets, its flows and its loop, and shares nothing.

Control talks to it over one command socket, each client over its own lane; the pure endpoint does
the rest. Control starts it with `--fd N`, configuration in DLCPD_ENGINE_CONFIG; it ends when the
command socket closes.
"""

import argparse
import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from dlcpd import transfer_form
from dlcpd.contract.errors import BadConfig, DlcpError, TooMany
from dlcpd.core.endpoint import Endpoint
from dlcpd.core.paths.pacing import Pacer
from dlcpd.core.send_scheduler import SendScheduler
from dlcpd.core.session.events import Event, PathNews, PeerNews
from dlcpd.core.trace import Trace
from dlcpd.core.transfer.incoming import NoPlacement
from dlcpd.core.wire import nh
from dlcpd.core.wire.sizes import BASE
from dlcpd.io.clients.clients import Clients
from dlcpd.io.command_handler import CommandHandler
from dlcpd.io.config import COUNT_CALLS, EngineConfig
from dlcpd.io.control_events import EngineFailed, EngineReady, PeerChanged
from dlcpd.io.control_frames import pack
from dlcpd.io.control_link import ControlGone, ControlLink, Reporter
from dlcpd.io.datapath.choices import COMPILED, NUMPY
from dlcpd.io.heap import collect_rarely, keep_warm
from dlcpd.io.network import Network, Sockets
from dlcpd.io.poll import EngineBroken, Poll
from dlcpd.io.report import Part, report_parts
from dlcpd.io.session_opener import SessionOpener

MAX_FAILURES: Final = 16  # wake-ups in a row with a failed step, before the loop rests
FAILURE_REST: Final = 0.01  # seconds
DRAIN_LOOK: Final = 0.05  # seconds between two checks whether the last operation is over


class Engine:
    """Composition and order of the parts; their rules are their own."""

    def __init__(self, config: EngineConfig, control: socket.socket) -> None:
        """Raises: AddressUnavailable, BadConfig."""
        counters, effort = Counter[str](), Counter[str]()
        sockets = Sockets.opened(config, counters, effort)
        self._encryption = sockets.encryption
        self.endpoint = _endpoint(config, sockets, counters, effort)
        self._poll = Poll(counters)
        self.control = ControlLink(control, counters)
        self.network = Network(
            config, sockets, self.endpoint, control=self.control, poll=self._poll
        )
        self.clients = Clients(
            self.endpoint,
            self.control,
            self._poll,
            trouble=self.network.trouble,
            forget=self.network.forget,
        )
        opener = SessionOpener(
            config,
            self.endpoint,
            network=self.network,
            clients=self.clients,
            control=self.control,
        )
        self._reporter = Reporter(self.control, counters, self._report)
        handler = CommandHandler(
            self.endpoint,
            control=self.control,
            clients=self.clients,
            reporter=self._reporter,
            opener=opener,
            stop=self._stop,
            find_routes=self.network.find_routes,
        )
        self._stop_at: float | None = None  # time at which the loop ends; None: not requested
        self._failures = self._in_a_row = 0  # failed steps of the loop; wake-ups in a row with one
        self._poll.watch(self.control, handler.handle)
        self.network.watch()
        self.features = {
            "data_path": COMPILED if sockets.compiled else NUMPY,
            "transfer": transfer_form.form(),
            "data_encryption": config.data_encryption,
            "gso": all(path.gso for path in sockets.paths),
            "gro": all(path.receiver.gro for path in sockets.paths),
            "receive_buffer": min(path.receive_buffer for path in sockets.paths),
        }
        self._steps = (  # of a wake-up, once the handlers have run
            self.endpoint.handle_timeout,
            self.endpoint.exchange,
            self.network.send,
            self._tell_outcomes,
            self._reporter.work,
        )

    def fileno(self) -> int:
        """A descriptor that can be read when `step` has something to read or write."""
        return self._poll.fileno()

    def run(self) -> None:
        """Run until Stop, or until the command socket closes."""
        while self._stop_at is None or not self._drained():
            self._pause()
            self.step()
        self.clients.delivery.end_all()

    def close(self) -> None:
        """Close all lanes and UDP sockets, and unmap the arenas, whatever state the sessions are
        in. For an engine in a process that goes on: a process that ends needs no call."""
        for client in self.clients:
            client.close()
        for path in self.network.paths:
            path.socket.close()

    def step(self) -> None:
        """One wake-up: wait until something is due, and do all that is.

        Raises: ControlGone, EngineBroken.
        """
        failures = self._failures
        self._run((self._wait,))
        self.endpoint.effort["wakes"] += 1
        if self.clients.busy:
            self._run((self.clients.work,))
        self._run(self._steps, time.monotonic())
        self._poll.watch_writing(self.control, bool(self.control.backlog))
        failed = self._failures != failures
        if failed or self._in_a_row:
            self._rest(failed=failed)

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

    def _pause(self) -> None:
        """Let several datagrams come before the next wake-up, if they may wait."""
        now = time.monotonic()
        left = self.endpoint.pause(now)
        if left > 0.0 and (due := self.timeout(now)) != 0.0:
            self._poll.pause(left if due < 0.0 else min(left, due))

    def _wait(self) -> None:
        """Wait for descriptors or timers, and call their handlers. A method, so that the last
        handler is dropped at its end: it may belong to a client that is gone, and hold the
        arena."""
        for handler, mask in self._poll.wait(self.timeout(time.monotonic())):
            try:
                handler(mask, time.monotonic())
            except Exception as exc:  # a bug: the other handlers run
                self._failed(exc)

    def timeout(self, now: float) -> float:
        """Seconds for which nothing is due; below 0: no limit."""
        endpoint = self.endpoint
        more = endpoint.more_here or endpoint.scheduler.more
        if more or self.clients.busy or self._reporter.busy:
            return 0.0
        due = endpoint.next_timeout()
        timeout = -1.0 if due is None else max(due - now, 0.0)
        if self._stop_at is not None:
            timeout = DRAIN_LOOK if timeout < 0 else min(timeout, DRAIN_LOOK)
        return timeout

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
        if self._encryption and self._encryption.spent:
            self._end_spent(self._encryption.spent)
        if self.clients.delivery:
            self.clients.delivery.look()
        self.clients.close_ended()

    def _tell_control(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, PathNews):
                self.network.on_path_news(event)
            elif isinstance(event, PeerNews):
                number, rank, state, silent = event
                self.control.emit(PeerChanged(number, rank, state.value, silent))

    def _end_spent(self, spent: set[int]) -> None:
        """End the sessions of flows that have no counter left for another datagram."""
        for flow in [self.endpoint.flows[index] for index in spent & self.endpoint.flows.keys()]:
            error = TooMany(
                f"rank {flow.rank} on {flow.host}: as many datagrams have gone to it as one "
                f"session's keys are good for; join again"
            )
            self.clients.end(flow.session.number, error)
        spent.clear()

    def _report(self, ledger: int) -> Iterator[Part]:
        accounts = {client.session.number: client.lane.accounts for client in self.clients}
        network = self.network
        return report_parts(self.endpoint, network.paths, network.mtu, accounts, ledger)

    def _drained(self) -> bool:
        late = self._stop_at is not None and time.monotonic() >= self._stop_at
        return late or not any(s.operations for s in self.endpoint.sessions.values())

    def _stop(self, at: float) -> None:
        self._stop_at = at


def _endpoint(
    config: EngineConfig, sockets: Sockets, counters: Counter[str], effort: Counter[str]
) -> Endpoint:
    library = sockets.compiled
    return Endpoint(
        min(BASE, config.segment_size),
        sum(path.receive_buffer for path in sockets.paths),
        SendScheduler(Pacer(config.rate_limit_bps)),
        host=config.host,
        max_window=config.window,
        congestion_control=config.congestion_control,
        alarm_loss=config.alarm_loss,
        counters=counters,
        effort=effort,
        placement=library.table if library else NoPlacement(),
        keys=sockets.keys,
        hash_rows=library.hash_rows if library else nh.of_rows,
        trace=Trace(time.monotonic),
    )


def _count_calls(effort: Counter[str]) -> None:
    """Count the calls of Python and of C from now on; every call then takes twice as long."""

    def count(_frame: Any, event: str, _argument: Any) -> None:
        if event in ("call", "c_call"):
            effort["python_calls"] += 1

    sys.setprofile(count)


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
        control.send(pack(EngineFailed(exc.code, str(exc))))
        return 1
    control.send(pack(EngineReady(engine.network.endpoints, engine.features)))
    if os.environ.get(COUNT_CALLS):
        _count_calls(engine.endpoint.effort)
    keep_warm()
    collect_rarely()
    try:
        engine.run()
    except ControlGone:
        return 0  # raised in the middle of a step
    except EngineBroken:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
