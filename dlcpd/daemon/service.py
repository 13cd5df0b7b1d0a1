"""One daemon from start to end: engines, peers, sessions, clients; and what ends it."""

import asyncio
import dataclasses
import os
import socket
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from dlcpd import __version__
from dlcpd.contract.errors import BadConfig, DaemonLost, DaemonUnavailable, DlcpError
from dlcpd.daemon import log
from dlcpd.daemon.addresses import Addresses
from dlcpd.daemon.clients.access import Access
from dlcpd.daemon.clients.connection import Connection, Reception
from dlcpd.daemon.clients.server import SPARE_CONNECTIONS, Server
from dlcpd.daemon.clients.session_socket import SessionSocket
from dlcpd.daemon.clients.socket_lock import SocketLock
from dlcpd.daemon.condition import Condition
from dlcpd.daemon.config.effective import Automatic, engine_configs
from dlcpd.daemon.config.reload import Reloaded, reloaded
from dlcpd.daemon.config.tables import Config
from dlcpd.daemon.config.topology import capacity_told
from dlcpd.daemon.cordon import Cordon
from dlcpd.daemon.ending import Ending
from dlcpd.daemon.engine_process import ENGINE
from dlcpd.daemon.engines import Engines
from dlcpd.daemon.host_costs import HostCosts
from dlcpd.daemon.metrics.port import MetricsPort
from dlcpd.daemon.moving import Moving, warn_of_any_key, welcome
from dlcpd.daemon.notify import READY, Notifier, for_children, stopping, watchdog_limit
from dlcpd.daemon.peers.peers import Peers
from dlcpd.daemon.peers.trust import Trust
from dlcpd.daemon.reload_signal import ReloadSignal
from dlcpd.daemon.revocation import KeyWatch
from dlcpd.daemon.sessions.admission import SessionSettings
from dlcpd.daemon.sessions.dispatch import Dispatch, peer_callbacks
from dlcpd.daemon.sessions.sessions import Sessions
from dlcpd.daemon.state_file import state_file
from dlcpd.daemon.status import Facts, report
from dlcpd.daemon.tracing import Tracing
from dlcpd.daemon.watchdog import watch
from dlcpd.io.control_events import EngineReady, Event

MAX_LEDGER: Final = 1000  # rows over all sessions: ~100 B each, so that a report fits one packet
STOP_MARGIN: Final = 10.0  # seconds that the end takes beyond the drain, at most


class Service:
    """Runs once. `config` is resolved; `read_again` reads it again, on SIGHUP. `automatic`: the
    addresses in it that follow the default route."""

    def __init__(
        self,
        config: Config,
        automatic: Automatic,
        environ: Mapping[str, str],
        engine_command: Sequence[str] = ENGINE,
        read_again: Callable[[], Config] | None = None,
    ) -> None:
        self._config, self._automatic, self._read_again = config, automatic, read_again
        self._addresses = Addresses(automatic, in_use=lambda: self._moving.in_use, move=self._move)
        self._pending: tuple[str, ...] = ()  # settings of the file that wait for a restart
        # A daemon must not know a job's secret, even if it is set where the daemon starts.
        self._environ = {
            k: v for k, v in for_children(environ).items() if not k.startswith("DLCPD_JOB_SECRET")
        }
        self._notify = Notifier(environ.get("NOTIFY_SOCKET", ""))
        self._reload_signal = ReloadSignal(self._reload, self._notify)
        self._journal = log.journal_of(environ.get("JOURNAL_STREAM", ""))
        limit = watchdog_limit(environ, os.getpid())
        self._condition = Condition(limit)
        self._state_folder = environ.get("STATE_DIRECTORY", "")
        self._watchdog = self._notify if limit else Notifier("")
        self._counters: Counter[str] = Counter()
        self._engines = Engines(
            on_event=self._engine_event,
            on_exit=self._engine_lost,
            on_change=self._engine_changed,
            command=engine_command,
        )
        self._ending = Ending()
        self._trust: Trust
        self._keys: KeyWatch
        self._peers: Peers | None = None
        self._sessions: Sessions
        self._dispatch: Dispatch
        self._server: Server
        self._facts: Facts
        self._metrics = MetricsPort(config.metrics, partial(self._status, 0), self._condition)
        self._embedded = False  # ends with its last client
        self._session_socket: SessionSocket
        self._moving: Moving

    async def run(
        self,
        client: socket.socket | None = None,
        listener: socket.socket | None = None,
        claimed: SocketLock | None = None,
    ) -> int:
        """Serve until a signal or, embedded, until the connected `client` and all that came
        through `listener` have ended. Returns the exit code.

        Without `client`, `listener` is the session socket of a service manager; without both,
        `claimed` is the lock of the own session socket.

        Raises: DlcpError when it cannot start; nothing is left behind.
        """
        asyncio.get_running_loop().set_exception_handler(self._unexpected)
        parent = os.getppid()  # now: it may end while the engine starts
        daemon = self._config.daemon
        access = Access.configured(daemon.allowed_users, daemon.socket_group)
        self._embedded = client is not None
        if self._embedded:  # no file, so neither mode nor group decides: own user and root
            access = Access.configured(())
        capacity = capacity_told(self._config.planner.topology, daemon.host)
        self._trust = Trust.configured(self._config.security)
        self._keys = KeyWatch(self._trust.authorised, self._revoked)
        self._install_signals()
        starting = self._engines.start(engine_configs(self._config), self._environ)
        if (ready := await self._ending.unless_asked(starting)) is None:
            await self._engines.stop(0.0)
            log.info("stopped", code="ok")
            return 0
        try:
            self._compose(ready, access.users)
            self._sessions.planner.capacity = capacity
            self._sessions.configure(self._config.planner)
            self._metrics.start()
            file = Path(daemon.socket)
            self._session_socket = SessionSocket(self._server, file, access, claimed)
            if client is None:
                self._session_socket.serve(listener)
            else:
                self._session_socket.serve_private(client, listener)
                if listener is None:
                    self._ending.with_parent(parent)
        except DlcpError:
            await self._metrics.close()
            await self._engines.stop(0.0)
            if self._peers:
                self._peers.close()
            raise
        self._announce()
        self._keys.start()
        self._addresses.start(self._config)
        self._reload_signal.serve()
        await self._until_asked_to_end()
        return await self._shut_down()

    async def _until_asked_to_end(self) -> None:
        """Wait for the end; meanwhile look whether the engines answer."""
        signs = asyncio.ensure_future(
            watch(
                self._engines,
                self._condition,
                self._watchdog,
                self._session_socket,
            )
        )
        await self._ending.wait()
        self._addresses.close()
        signs.cancel()  # from now on the manager has another limit, see `_shut_down`

    def _compose(self, ready: list[EngineReady], users: frozenset[int] | None) -> None:
        """Make the parts and tie them together.

        Raises: AddressUnavailable.
        """
        loop, daemon = asyncio.get_running_loop(), self._config.daemon
        self._peers = peers = Peers(
            loop,
            daemon.control_address,
            daemon.control_port,
            trust=self._trust,
            news=peer_callbacks(lambda: self._dispatch),
            counters=self._counters,
            told=next(iter(self._config.inject.relays), ""),
        )
        features = {"engines": len(ready), **ready[0].features}
        kept = partial(state_file, self._state_folder, None if self._embedded else daemon.socket)
        costs = HostCosts(kept("costs"), self._config, features, self._environ)
        settings = SessionSettings.of(self._config)
        self._sessions = Sessions.of(
            loop, settings, self._condition, peers=peers, engines=self._engines, costs=costs
        )
        self._sessions.ends.on_forgotten = self._end_if_unused
        self._dispatch = Dispatch(
            loop, self._sessions, self._engines, self._counters, peers.public_key
        )
        self._facts = Facts(daemon.host, features, loop.time())
        reception = Reception(
            welcome=welcome(daemon.host, peers),
            sessions=self._sessions,
            status=self._status,
            condition=self._condition,
            cordon=Cordon(self._condition, kept("cordoned")),
            tracing=Tracing(self._engines),
            count=lambda reason: self._counters.update((reason,)),
            closed=self._client_closed,
        )
        most = daemon.max_sessions + SPARE_CONNECTIONS
        self._server = Server(loop, reception, users=users, max_connections=most)
        self._moving = Moving(
            peers, self._engines, self._sessions, self._server, reception, self._trust
        )

    async def _move(self, address: str) -> None:
        """Raises: AddressUnavailable."""
        config = self._automatic.at(address, self._config)
        if self._automatic.control:
            self._moving.listen(config)
        self._config = config
        if self._read_again:
            with suppress(BadConfig, OSError):  # which the next reload reports
                self._pending = reloaded(config, self._read_again()).waiting
        if self._automatic.paths:
            await self._moving.send_from(config)

    def _revoked(self, keys: Collection[str]) -> None:
        if self._peers:
            self._peers.revoke(keys)
            self._dispatch.revoked(keys)

    def _announce(self) -> None:
        log.info(
            "ready",
            version=__version__,
            host=self._facts.host,
            session=self._session_socket.name,
            control=self._moving.peers.endpoint,
            data=", ".join(f"{address}:{port}" for address, port in self._engines.addresses),
            identity=self._trust.identity or "of this start",
            authorised=self._trust.authorised.folder or "any key",
        )
        if not self._embedded:  # private ones warn per job: it may have a secret
            warn_of_any_key(self._trust, self._moving.peers.endpoint)
        self._notify(READY)

    def _install_signals(self) -> None:
        self._ending.on_signal(embedded=self._embedded)
        if not self._embedded:
            self._reload_signal.install()

    def _reload(self) -> None:
        """Read the keys, and the settings that can change at run time. Raises: as `_take_over`."""
        self._addresses.soon()
        self._keys.look()
        if self._read_again:
            self._take_over(reloaded(self._config, self._read_again()))

    def _take_over(self, found: Reloaded) -> None:
        """Raises: BadConfig for a user that this host does not have, or a bad topology; OSError."""
        daemon = found.config.daemon
        access = Access.configured(daemon.allowed_users, daemon.socket_group)
        capacity = capacity_told(found.config.planner.topology, daemon.host)
        self._metrics.read_again()
        self._session_socket.admit(access)
        self._sessions.configure(found.config.planner)
        self._sessions.planner.host_changed(capacity)
        log.configure(daemon.log_level, daemon.log_format, to_journal=self._journal)
        self._config, self._pending = found.config, found.waiting
        log.info("reloaded", changed=", ".join(found.changed) or "nothing")
        if found.waiting:
            log.warning(
                "reload_incomplete",
                text="these wait for a restart of dlcpd",
                keys=", ".join(found.waiting),
            )

    async def _shut_down(self) -> int:
        assert self._peers is not None  # noqa: S101  # composed before anything could end
        drain = self._config.daemon.drain_timeout if len(self._sessions.table) else 0.0
        self._notify(stopping(drain + STOP_MARGIN))
        self._condition.draining = True
        self._reload_signal.end()
        self._session_socket.leave_waiting()
        for session in self._sessions.table:
            if not session.joined_at:
                error = DaemonUnavailable(f"dlcpd on {self._facts.host} is stopping")
                self._sessions.ends.refuse(session, error)
        await self._ending.drain(self._engines, drain)
        why = self._ending.error(self._facts.host)
        await self._metrics.close()
        self._sessions.stop()
        self._server.close(why)
        for session in self._sessions.table:  # their clients had left before
            self._sessions.ends.close(session, why)
        self._peers.close()
        self._dispatch.network_news.close()
        log.info("stopped", code="ok")
        self._notify.close()
        return 0

    def _engine_event(self, engine: int, event: Event) -> None:
        self._dispatch.engine_event(engine, event)

    def _engine_lost(self, engine: int, text: str) -> None:
        """End the sessions of an engine that ended, and no others: a new engine is being
        started."""
        self._counters["engine_lost"] += 1
        if self._peers is None:  # the other engines are still starting: there are no sessions
            return
        error = DaemonLost(
            f"dlcpd on {self._config.daemon.host}: {text}. Operations in flight are lost; restart "
            f"the job from its last checkpoint"
        )
        self._sessions.ends.engine_ended(engine, error)

    def _engine_changed(self, engine: int) -> None:
        if self._peers is not None:
            self._sessions.joining.engine_changed(engine)

    def _client_closed(self, connection: Connection) -> None:
        self._server.forget(connection)
        self._end_if_unused()

    def _end_if_unused(self) -> None:
        """End a private daemon after its last client, once that client's operations are
        delivered."""
        if self._embedded and not len(self._server) and not len(self._sessions.table):
            self._ending.ask()

    def _unexpected(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A bug: one callback failed. Log where, and go on serving the others."""
        self._counters["internal"] += 1
        exc = context.get("exception")
        where = "".join(traceback.format_exception(exc)) if exc else str(context.get("message"))
        log.error("internal", code=DlcpError.code, text=where[-log.MAX_VALUE :])

    async def _status(self, ledger: int) -> dict[str, Any]:
        rows = min(ledger, MAX_LEDGER // max(len(self._sessions.table), 1))
        engine = await self._engines.report(rows)
        now = asyncio.get_running_loop().time()
        known = report(
            self._facts, self._sessions, self._condition, self._counters, engine=engine, now=now
        )
        known |= {"engines": self._engines.states(), "pending": self._pending}
        known |= {"config": dataclasses.asdict(self._config)}
        endpoints = {"control": self._moving.peers.endpoint, "data": self._engines.addresses}
        known |= {"endpoints": endpoints, "unreachable": self._addresses.problem}
        known["unmeasured"] = self._metrics.problem
        return known | {"security": self._trust.report()}
