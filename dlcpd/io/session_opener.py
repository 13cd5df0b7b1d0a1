"""Opening sessions in an engine, on control's command."""

from pathlib import Path
from typing import Final

from dlcpd.collectives.holdings import Holdings, MemoryBudget
from dlcpd.collectives.loss.accounts import MAX_LEFT_OVER, Accounts
from dlcpd.collectives.scratch import ScratchPool
from dlcpd.contract.collectives import Share
from dlcpd.contract.errors import ArenaFull, DlcpError, TooMany
from dlcpd.core.endpoint import MAX_FLOWS, Endpoint, PeerSpec
from dlcpd.io.clients.client import Client
from dlcpd.io.clients.clients import Clients
from dlcpd.io.clients.lane import Lane
from dlcpd.io.commands import OpenSession
from dlcpd.io.config import EngineConfig
from dlcpd.io.control_events import LedgerEnded, SessionEnded, SessionOpened
from dlcpd.io.control_link import ControlLink
from dlcpd.io.network import Network
from dlcpd.ipc.seqpacket import close_all
from dlcpd.ledger.recorder import About, Recorder, mark
from dlcpd.ledger.records import Rank
from dlcpd.requests.networks import Networks
from dlcpd.schedules.network import job_network

CARRIED: Final = 2  # descriptors beside an OpenSession: arena and lane


class SessionOpener:
    """Opens sessions, as far as memory, descriptors and the kernel allow; else control learns why
    not. A failure leaves nothing behind and ends no other session."""

    def __init__(
        self,
        config: EngineConfig,
        endpoint: Endpoint,
        *,
        network: Network,
        clients: Clients,
        control: ControlLink,
    ) -> None:
        self._config, self._endpoint = config, endpoint
        self._network, self._clients, self._control = network, clients, control
        self._scratch, self._spare = ScratchPool(config.chunk_bytes), ScratchPool(MAX_LEFT_OVER)
        self._budget = MemoryBudget.of(config.memory, config.session_memory, config.sessions)

    def open(self, command: OpenSession, descriptors: list[int]) -> None:
        """Serve a new session, or report why not: then the client's lane closes."""
        try:
            lane = self._lane(command, descriptors)
        except DlcpError as exc:
            self._control.emit(SessionEnded(command.session, exc.code, str(exc)))
            return
        try:
            self._begin(command, lane)
        except Exception as exc:
            if command.session not in self._clients:
                lane.close()
            self._not_begun(command.session, exc)

    def _not_begun(self, number: int, why: Exception) -> None:
        if isinstance(why, DlcpError):
            self._clients.end(number, why)
        elif isinstance(why, OSError):
            error = TooMany(f"the kernel refuses what one more session needs: {why}")
            self._clients.end(number, error)
        else:  # a bug: the other sessions go on
            self._clients.fault(number, why)

    def _lane(self, command: OpenSession, descriptors: list[int]) -> Lane:
        """Raises: TooMany, ArenaFull; the descriptors are closed."""
        room = len(self._endpoint.flows) + len(command.peers) <= MAX_FLOWS
        if not room or len(descriptors) < CARRIED:
            close_all(descriptors)
            if room:  # the kernel drops descriptors beyond this process's limit
                raise TooMany("the engine has no descriptors left: raise its limit (ulimit -n)")
            raise TooMany(f"an engine has at most {MAX_FLOWS} flows to peers")
        arena, lane = descriptors
        try:
            accounts = Accounts(Holdings(self._budget), self._spare)
            return Lane(
                command.session,
                arena,
                command.arena_bytes,
                lane,
                accounts,
                counters=self._endpoint.counters,
            )
        except (OSError, ValueError) as exc:
            size = command.arena_bytes
            raise ArenaFull(f"the engine has no room to map an arena of {size} B: {exc}") from exc

    def _begin(self, command: OpenSession, lane: Lane) -> None:
        paths = len(self._network.paths)
        peers = [
            PeerSpec(
                p.rank,
                p.host,
                p.token_in,
                p.token_out,
                min(paths, len(p.endpoints)),
                self._network.checked_with(p),
            )
            for p in command.peers
        ]
        session = self._endpoint.open_session(
            command.session,
            command.rank,
            peers,
            peer_timeout=self._config.peer_timeout,
            suspect_after=self._config.suspect_after,
            digest_key=command.digest_key,
        )
        if not self._network.admit():
            raise TooMany("the kernel has no memory for the socket filter of one more session")
        share = Share(command.engine, command.engines)
        recorder = self._recorder(command, lane)
        client = Client(
            lane,
            session,
            self._config,
            self._scratch,
            share,
            recorder,
            Networks(job_network(command.network, costs=command.costs), command.costs),
            command.round_trip,
        )
        self._clients.add(client, command.inherits)
        for peer in command.peers:
            if all(address.is_loopback for address in peer.endpoints):
                session.flows[peer.rank].paths.stay_here()
            self._network.add(command.session, session.flows[peer.rank], peer)
        self._control.emit(SessionOpened(command.session))

    def _recorder(self, command: OpenSession, lane: Lane) -> Recorder | None:
        config = self._config
        if not config.ledger:
            return None

        def told(text: str) -> None:
            self._endpoint.counters["ledger_ended"] += 1
            self._control.emit(LedgerEnded(command.session, text))

        ranks = [Rank(p.rank, p.host, mark(p.token_in), mark(p.token_out)) for p in command.peers]
        about = About(
            command.job, command.session, command.rank, command.engine, command.engines, ranks
        )
        return Recorder(
            about,
            Path(config.ledger),
            most=config.ledger_bytes,
            inputs=config.ledger_inputs,
            accounts=lane.accounts,
            told=told,
        )
